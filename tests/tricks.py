"""Ways to hide text in an HTML mail from a person: `{}` is the text. Chromium does not show it (`tests/browser/test_rendering.py`)."""

from pathlib import Path

NEWSLETTERS = Path(__file__).parent / "fixtures/newsletters"

# Own style of a box.
STYLES = """
display:none
visibility:hidden
visibility:collapse
opacity:0
opacity:0%
opacity:.01
opacity:calc(0)
opacity:var(--o);--o:0
filter:opacity(0)
filter:opacity(1%)
filter:brightness(100)contrast(0)invert(1)brightness(9)
filter:contrast(0) brightness(2)
filter:blur(90px)
mask:linear-gradient(transparent,transparent)
mask-image:linear-gradient(#0000,#0000)
-webkit-mask-image:linear-gradient(transparent,transparent)
clip-path:inset(50%)
clip-path:inset(0 0 100% 0)
clip-path:circle(0)
clip-path:polygon(0 0,0 0,0 0)
clip-path:path("M0 0")
clip-path:ellipse(0 0)
position:absolute;clip:rect(0,0,0,0)
position:absolute;clip:rect(1px 1px 1px 1px)
transform:scale(0)
transform:scaleX(0)
transform:scale(.01)
transform:scale3d(0,0,0)
transform:matrix(0,0,0,0,0,0)
transform:matrix(1,0,0,1,-9999,0)
transform:translate(-9999px)
transform:translateX(-200vw)
transform:translateY(-9999px)
transform:translate3d(-9999px,0,0)
transform:rotateY(90deg)
transform:rotateX(90deg)
transform:rotateY(180deg);backface-visibility:hidden
transform:perspective(1px) translateZ(2px)
transform:skewX(90deg)
scale:0
scale:.001
translate:-9999px
translate:-300%
rotate:y 90deg
rotate:90deg;transform-origin:0 0;translate:-50px -50px
zoom:.01
zoom:1%
offset-path:path("M-9999 0")
offset-path:path("M-9999 -9999L-9998 -9999")
content-visibility:hidden
contain:size;overflow:hidden
contain:strict
height:0;overflow:hidden
max-height:0;overflow:hidden
max-height:0;overflow:clip
max-height:1px;overflow:auto
block-size:0;overflow:hidden
max-block-size:0;overflow-y:hidden
width:0;overflow:hidden;white-space:nowrap
max-width:0;overflow:hidden;white-space:nowrap
inline-size:0;overflow:hidden
max-inline-size:0;overflow:hidden;white-space:nowrap
height:calc(1px*0);overflow:hidden
max-height:min(0px,9px);overflow:hidden
height:1em;font-size:1px;overflow:hidden
height:20px;padding-top:40px;box-sizing:border-box;overflow:hidden
height:10px;overflow:hidden;text-indent:100%;white-space:nowrap
width:100px;overflow:hidden;text-indent:200px;white-space:nowrap
aspect-ratio:9999/1;overflow:hidden
font-size:0
font-size:0.01px
font-size:1px;line-height:1px
font-size:0%
font-size:calc(0px)
font-size:calc(16px - 16px)
font-size:clamp(0px,0px,0px)
font-size:min(0px,16px)
font-size:max(0px,-1px)
font:0/0 a
font:1px/1 serif
font:normal 0 Arial
font-size:5e-9px
line-height:0;overflow:hidden
line-height:0;height:0;overflow:hidden
letter-spacing:-1em
letter-spacing:-99px
letter-spacing:9999px;text-indent:1300px
text-indent:-9999px
text-indent:-100vw
text-indent:-999em
text-indent:200%;white-space:nowrap;overflow:hidden
margin-left:-9999px
margin-left:-999em
margin:-9999px 0 0 -9999px
margin-top:-9999px
margin-inline-start:-9999px
margin-left:200%
padding-left:200vw
float:left;margin-left:-9999px
float:right;margin-right:-9999px
position:absolute;left:-9999px
position:absolute;left:-100vw
position:absolute;left:-999em
position:absolute;right:200%
position:absolute;top:-999px
position:absolute;top:-100vh
position:absolute;left:calc(-9999px)
position:absolute;left:calc(-100vw - 50px)
position:absolute;left:9999px
position:fixed;left:-9999px
position:fixed;bottom:-999px
position:fixed;inset:-99px auto auto -9999px
position:fixed;top:200vh
position:absolute;inset-inline-start:-9999px
position:relative;left:-9999px
position:relative;top:-9999px
position:relative;right:9999px
position:sticky;margin-left:-9999px
position:relative;z-index:-1;background:#fff;top:-999px
color:#fff
color:white
color:rgb(255,255,255)
color:rgb(255 255 255 / 100%)
color:rgb(100%,100%,100%)
color:rgba(0,0,0,0)
color:hsl(0,0%,100%)
color:hsl(120deg 100% 100%)
color:hwb(0 100% 0%)
color:lab(100 0 0)
color:oklch(1 0 0)
color:color(srgb 1 1 1)
color:color-mix(in srgb,white,white)
color:rgb(from white r g b)
color:transparent
color:#fff0
color:#0000
color:#fffffe
color:var(--x);--x:#fff
color:light-dark(white,black)
color:canvas
-webkit-text-fill-color:transparent
-webkit-text-fill-color:#fff
color:transparent;text-shadow:0 0 0 transparent
background:#123456;color:#123456
background:#000
background:black;color:rgb(1,1,1)
background:linear-gradient(#fff,#fff);color:#fff
background:linear-gradient(red,red) 0 0/0 0 no-repeat;color:#fff
background:url(x.png);color:#fff
background:#000 url(data:image/gif;base64,R0lGODlhAQABAIAAAP///wAAACH5BAAAAAAALAAAAAABAAEAAAICRAEAOw==);color:#fff
background:#fff;background-clip:text;-webkit-background-clip:text;color:transparent
box-shadow:inset 0 0 0 999px #fff;background:#000;color:#fff
writing-mode:vertical-lr;height:0;overflow:hidden
writing-mode:vertical-rl;text-indent:-9999px
columns:1px;column-gap:2000px;height:1px;text-indent:1300px
display:table-column
display:-webkit-box;-webkit-line-clamp:1;max-height:0;overflow:hidden
display:flex;width:0;overflow:hidden
display:grid;grid-template-rows:0;overflow:hidden;height:0
content:url(data:image/gif;base64,R0lGODlhAQABAIAAAP///wAAACH5BAAAAAAALAAAAAABAAEAAAICRAEAOw==)
direction:rtl;text-indent:-9999px
text-align:right;width:9999px
tab-size:9999;white-space:pre;text-indent:1300px
display:none!important;display:block
display:none;display:foo
d\\69splay:none
dis/**/play:block;display:none
DISPLAY:NONE
display:/**/none
all:unset;display:none
visibility:hidden;visibility:foo
text-overflow:ellipsis;overflow:hidden;width:0;white-space:nowrap
clip-path:inset(100%);shape-outside:inset(100%)
width:30px;overflow:hidden;white-space:pre;text-indent:40px
""".strip().splitlines()
# Rules of a sheet for <div id=i class="a x" title=t>, inside <section class=s>, after <hr>.
RULES = """
.x{display:none}
.x.a{display:none}
div.x{display:none}
#i{display:none}
div{display:none}
*{visibility:hidden}
[title]{display:none}
[title=t]{display:none}
[title="t" i]{display:none}
[title^=t]{display:none}
[class~=x]{display:none}
[class*="a x"]{display:none}
[id$=i]{display:none}
section .x{display:none}
section>.x{display:none}
.s>*{display:none}
hr+.x{display:none}
hr~div{display:none}
body section.s>div.x{display:none}
html>body>section>.x{display:none}
:root .x{display:none}
.x:nth-child(2){display:none}
.x:not(.y){display:none}
.x:not(p){display:none}
:is(.x,.y){display:none}
:where(.x){display:none}
section:has(.x) .x{display:none}
.x:last-child{display:none}
@media screen{.x{display:none}}
@media (min-width:600px){.x{display:none}}
@media only screen and (min-width:1px) and (max-width:9999px){.x{display:none}}
@media not print{.x{display:none}}
@media (width>=600px){.x{display:none}}
@media all{@media screen{.x{display:none}}}
@supports (display:grid){.x{display:none}}
@supports not (foo:bar){.x{display:none}}
@layer l{.x{display:none}}
@layer l{.x{display:block}}.x{display:none}
@import url("data:text/css,.x{display:none}");
@container (min-width:1px){.x{display:none}}.s{container-type:inline-size}
section{.x{display:none}}
section{>.x{display:none}}
.x{&{display:none}}
.x{&.a{display:none}}
.x{@media screen{display:none}}
@scope (section){.x{display:none}}
.x{--v:none;display:var(--v)}
:root{--c:#fff}.x{color:var(--c)}
.\\78{display:none}
.x{d\\69 splay:n\\6f ne}
.x{display:none!important}.x{display:block}
.x{display:none!important}#i{display:block}
.x{display:block}.x{display:none}
.a{display:block}.x{display:none}
#i{display:none}.x{display:block}
.x{color:#fff}
body{color:#fff}
section{color:#fff}.x{color:inherit}
section{color:#fff}.x{color:currentColor}
section{background:#333;color:#333}
section{font-size:0}
section{opacity:.1}.x{opacity:.2}
html{font-size:1px}.x{font-size:1rem}
.x::first-line{color:transparent}
.x::first-line{font-size:0}
.x{position:relative}.x::after{content:"";position:absolute;inset:0;background:#fff}
body::before{content:"";position:fixed;inset:0;background:#fff}
.s{position:relative}.s::after{content:"";position:absolute;inset:0;background:#fff}
.x{animation:h 1ms forwards}@keyframes h{to{visibility:hidden}}
.s{overflow:hidden;height:10px}hr{margin-top:90px}
.s{display:grid;grid-template-rows:20px 0;overflow:hidden;height:20px}.x{min-height:0;overflow:hidden}
.s{display:flex}.x{flex:0 0 0;overflow:hidden}
.s{position:relative;overflow:hidden;height:30px}.x{position:absolute;top:100px}
.s{visibility:hidden}
.s{display:contents}.x{display:none}
/* } */.x{display:none}
.y{content:"}"}.x{display:none}
<!-- .x{display:none} -->
@charset "x";.x{display:none}
.x{clip-path:inset(50%)}@layer l{.x{clip-path:none}}
.s{visibility:hidden}.x{visibility:inherit}
.s{visibility:hidden}.x{visibility:visible}#i{visibility:unset}
.s{letter-spacing:-99px}.x{letter-spacing:inherit}
.s{text-indent:-9999px}.x{text-indent:unset}
.s{-webkit-text-fill-color:transparent}.x{-webkit-text-fill-color:inherit}
.x{background:#000;color:#fff}#i{background:revert}
.x{background:#000;color:#fff}#i{background:inherit}
.x{background:#000;color:#fff}#i{background-color:inherit}
.x{background:#000;color:#fff}#i{all:revert;color:#fff}
.x{display:none}.x{display:revert-layer;display:none}
.y{}.x{display:none
""".strip().splitlines()
MARKUP = [
    "<p hidden>{}</p>",
    "<p hidden=until-found>{}</p>",
    "<style>.x{{display:none}}</style><p class=x style='display:revert-layer'>{}",
    "<style>.x{{clip-path:inset(50%)}}</style><p class=x style='clip-path:revert-layer'>{}",
    "<style>.x{{color:#fff}}</style><p class=x style='color:black;color:revert-layer'>{}",
    "<body style='color:#fff'></body></html>{}",
    "<div popover>{}</div>",
    "<dialog>{}</dialog>",
    "<details><summary>more</summary>{}</details>",
    "<template>{}</template>",
    "<datalist><option>{}</option></datalist>",
    "<select><option>more</option><option>{}</option></select>",
    "<video>{}</video>",
    "<audio>{}</audio>",
    "<iframe>{}</iframe>",
    "<noembed>{}</noembed>",
    "<noframes>{}</noframes>",
    "<progress>{}</progress>",
    "<meter value=1>{}</meter>",
    "<ruby>more<rp>{}</rp></ruby>",
    "<input type=hidden value='{}'>",
    "<img alt='{}' width=1 height=1>",
    "<svg width=0 height=0><text y=20>{}</text></svg>",
    "<svg><text x=-999>{}</text></svg>",
    "<svg><defs><text>{}</text></defs></svg>",
    "<svg><foreignObject>{}</foreignObject></svg>",
    "<math><mphantom><mtext>{}</mtext></mphantom></math>",
    "<font color=white>{}</font>",
    "<font color=#FFFFFF>{}</font>",
    "<font color=ffffff>{}</font>",
    "<table bgcolor=black><tr><td><font color=black>{}</font></td></tr></table>",
    "<table style='display:none'><tr><td>{}</td></tr></table>",
    "<table><tr style='display:none'><td>{}</td></tr></table>",
    "<table><tr style='visibility:collapse'><td>{}</td></tr></table>",
    "<table><colgroup><col style='visibility:collapse'></colgroup><tr><td>{}</td></tr></table>",
    "<table style='table-layout:fixed;width:9px'><tr><td style='width:1px;overflow:hidden;white-space:nowrap;max-width:1px'>{}</td></tr></table>",
    "<div style='position:relative'>{}<div style='position:absolute;inset:0;background:#fff'></div></div>",
    "<div style='position:relative'>{}<div style='position:absolute;top:0;left:0;width:100%;height:100%;background-color:white'></div></div>",
    "{}<div style='position:fixed;inset:0;background:#fff'></div>",
    "{}<div style='position:fixed;top:0;left:0;width:100vw;height:100vh;background:white;z-index:9'></div>",
    "<div>{}</div><div style='position:relative;top:-40px;height:60px;background:#fff'></div>",
    "<div>{}</div><div style='position:relative;margin-top:-40px;height:60px;background:#fff'></div>",
    "<div>{}</div><div style='display:inline-block;margin-top:-60px;height:90px;width:900px;background:#fff'></div>",
    "<div style='height:0'>{}</div><div style='position:relative;height:60px;background:#fff'></div>",
    "<div style='line-height:0'>{}</div><div style='position:relative;margin-top:-9px;height:60px;background:#fff'></div>",
    "<div style='margin-bottom:-40px'>{}</div><div style='position:relative;height:60px;background:#fff'></div>",
    "<div style='position:absolute'>{}</div><div style='position:relative;height:60px;background:#fff'></div>",
    "<div style='display:grid'><div style='grid-area:1/1'>{}</div><div style='grid-area:1/1;background:#fff'></div></div>",
    "<div style='position:relative'>{}<img style='position:absolute;top:0;left:0;width:900px;height:99px;background:#fff' src=x></div>",
    "<p>{}</p><p style='outline:90px solid #fff;height:20px;margin-top:-9px'></p>",
    "<div style='overflow:hidden;height:20px'><div style='margin-top:60px'>{}</div></div>",
    "<div style='overflow:hidden;height:20px;position:relative'><div style='position:relative;top:50px'>{}</div></div>",
    "<div style='overflow:hidden;width:200px'><div style='margin-left:400px;white-space:nowrap'>{}</div></div>",
    "<div style='background:#000;height:1px'><span style='color:#fff'>{}</span></div>",
    "<span style='background:#000'><div style='color:#fff'>{}</div></span>",
    "<div style='background:#000;display:contents;color:#fff'>{}</div>",
    "<div style='background:#000;visibility:hidden'><span style='visibility:visible;color:#fff'>{}</span></div>",
    "<div style='background:#000;color:#fff'><span style='all:initial'>{}</span></div>",
    "<a href=https://x.example style='color:#fff'>{}</a>",
    "<body text=white>{}",
    "<body bgcolor=black>{}",
    "<div style='opacity:.1'><div style='opacity:.2'>{}</div></div>",
    "<div style='margin-left:-9px'>" * 150 + "{}" + "</div>" * 150,
    "<div style='zoom:.5'>" * 9 + "{}" + "</div>" * 9,
    "<style media=print>.x{{display:block!important}}</style><style>.x{{display:none}}</style><p class=x>{}",
    "<style type=text/plain>.x{{display:block!important}}</style><style>.x{{display:none}}</style><p class=x>{}",
    "<template><style>.x{{display:block!important}}</style></template><style>.x{{display:none}}</style><p class=x>{}",
    "<link rel=stylesheet href='data:text/css,.x{{display:none}}'><p class=x>{}",
    "<style>" + ".a{{color:red}}" * 6000 + ".x{{display:none}}</style><p class=x>{}",
    "<style>@keyframes x{{to{{opacity:0}}}}</style><p style='animation:x 1ms forwards'>{}",
    "<div style='perspective:1px'><p style='transform:translateZ(9px)'>{}</p></div>",
    "<p style='unicode-bidi:bidi-override;direction:rtl;text-indent:-9999px'>{}</p>",
    "<!--[if mso]>{}<![endif]-->",
    "<title>{}</title>",
]  # fmt: skip


def tricks() -> list[str]:
    """Return every page with the place of the text as `{}`."""
    sheet = '<style>{rule}</style><section class=s><hr><div id=i class="a x" title=t>{{}}</div></section>'
    made = [f'<div style="{style.replace(chr(34), chr(39))}">{{}}</div>' for style in STYLES]
    made += [sheet.format(rule=rule.replace("{", "{{").replace("}", "}}")) for rule in RULES]
    return made + MARKUP
