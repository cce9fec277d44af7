"""Ways to show recipients of a letter other words, or another order of them, than its plain text."""

from itertools import product

SECRET = "pay 9000 EUR to account 99999"
# Hides what is marked, or shows it elsewhere; none of it must reach a recipient.
STYLES = """display:none; display:block; visibility:hidden; opacity:0; font-size:0; font-size:1px; color:#fff; color:transparent; color:white;background:white
scale:0; transform:scale(0); transform:translateX(-9999px); transform:rotateY(90deg); transform:scaleX(-1); translate:-9999px; rotate:y 90deg; zoom:0; zoom:.01
position:absolute;left:-9999px; position:fixed;top:-9999px; position:absolute;inset:0;background:#fff; position:relative;top:-40px; margin-left:-9999px; margin-top:-30px
clip:rect(0 0 0 0);position:absolute; clip-path:inset(100%); clip-path:circle(0); mask:linear-gradient(transparent,transparent); mask-size:0; filter:opacity(0); filter:blur(99px)
height:0;overflow:hidden; max-height:0;overflow:hidden; width:0;overflow:hidden; max-width:0;overflow:hidden;white-space:nowrap; line-height:0; text-indent:-9999px; text-indent:9999px
letter-spacing:-9em; word-spacing:-99em; content-visibility:hidden; offset-path:path("M-9999 0"); offset-distance:9999px; contain:size; columns:0; -webkit-text-fill-color:transparent
-webkit-text-security:disc; text-overflow:ellipsis;overflow:hidden;width:1em; direction:rtl;unicode-bidi:bidi-override; unicode-bidi:plaintext; writing-mode:vertical-rl; text-orientation:upright
float:right; order:-1; display:flex;flex-direction:row-reverse; display:flex;flex-direction:column-reverse; display:grid;grid-auto-flow:dense; display:table-header-group; display:table-footer-group
display:contents; display:inline-block;width:0; mix-blend-mode:difference; z-index:-1;position:relative; overflow-clip-margin:0;overflow:clip;height:0; mso-hide:all; visibility:collapse
animation:x 1s; transition:all 1s; text-transform:uppercase; font-family:wingdings; font-variant:small-caps; caption-side:bottom; list-style:inside 'pay'; quotes:'pay' 'pay'; counter-reset:x 9000"""
CARRIERS = ("<p>Hello.</p><div style=\"{css}\">{}</div>", "<div style='{css}'><p>Hello.</p><p>{}</p></div>")  # fmt: skip
MARKUP = """<title style="display:block">{}</title>|<head><title>{}</title></head>|<style>p::after{content:'{}'}</style>|<style>.z{display:none}@media (width<5000px){.z{display:block}}</style><p class=z>{}</p>
<svg><text y=20>{}</text></svg>|<svg><title>{}</title></svg>|<svg><foreignObject><p>{}</p></foreignObject></svg>|<svg><style><p>{}</p></style></svg>|<svg><desc>{}</desc></svg>|<math><mtext>{}</mtext></math>|<math><mi><![CDATA[{}]]></mi></math>
<!-- {} -->|<!--[if mso]>{}<![endif]-->|<![if !mso]>{}<![endif]>|<!--><p>{}</p>-->|<!--x--!><p>{}</p>|<?php {} ?>|<![CDATA[{}]]>|<!doctype [{}]>
<noscript>{}</noscript>|<template>{}</template>|<details><summary>x</summary>{}</details>|<details open>{}</details>|<dialog open>{}</dialog>|<textarea>{}</textarea>|<xmp>{}</xmp>|<plaintext>{}|<noembed>{}</noembed>|<noframes>{}</noframes>
<input value='{}'>|<input placeholder="{}">|<input type=submit value="{}">|<button>{}</button>|<select><option>{}</select>|<option label='{}'>|<optgroup label="{}">|<datalist><option>{}</datalist>|<meter>{}</meter>|<progress>{}</progress>|<output>{}</output>|<fieldset><legend>{}</legend></fieldset>|<form><p>{}</p></form>|<label>{}</label>
<img alt="{}">|<img src=x alt='{}'>|<object>{}</object>|<embed alt='{}'>|<iframe srcdoc="{}"></iframe>|<video>{}</video>|<audio>{}</audio>|<canvas>{}</canvas>|<picture>{}</picture>|<map><area alt="{}"></map>|<applet>{}</applet>|<frameset><frame title="{}"></frameset>|<portal>{}</portal>
<ruby>x<rp>{}</rp></ruby>|<ruby>x<rt>{}</rt></ruby>|<bdo dir=rtl>{}</bdo>|<bdi>{}</bdi>|<q>{}</q>|<marquee>{}</marquee>|<blink>{}</blink>|<slot>{}</slot>|<x-y>{}</x-y>|<o:p>{}</o:p>|<wbr title="{}">|<base href="https://{}/">|<link rel=stylesheet href="{}">|<script>document.write('{}')</script>
<meta http-equiv=refresh content="0;url=data:text/html,{}">|<p title="{}">x</p>|<p data-x="{}">x</p>|<p aria-label="{}">x</p>|<a href="https://example.com/" title="{}">x</a>|<p hidden>{}</p>|<div inert>{}</div>|<p aria-hidden=true>{}</p>|<div popover>{}</div>|<p contenteditable>{}</p>
<table dir=rtl><tr><td>account 99999</td><td>pay 9000 EUR to</td></tr></table>|<table><tr><td>x</td></tr><tfoot><tr><td>{}</td></tr></tfoot></table>|<table><tr><td>x</td></tr><thead><tr><td>{}</td></tr></thead></table>|<table><caption align=bottom>{}</caption><tr><td>x</td></tr></table>
<table>{}<tr><td>x</td></tr></table>|<table><tr>{}<td>x</td></tr></table>|<table><p>{}</p><tr><td>x</td></tr></table>|<table><b>{}</b></table>|<table><tr><td>x</td></tr>&nbsp;{}</table>|<table><colgroup>{}</colgroup></table>|<table><tr><td colspan=9 rowspan=9>{}</td></tr></table>
<ol reversed start=9000><li>x</li></ol>{}|<ol><li value=9000>{}</li></ol>|<ul><li>a<li>{}</ul>|<dl><dt>{}</dl>|<p>x<p>{}|<p>x<div>{}</div></p>|<b><p>x</b>{}</p>|<a href="https://a.example/">x<a href="https://b.example/">{}</a></a>|<i><b>x</i>{}</b>
<p>\u202e{}</p>|<p>\u202d{}\u202c</p>|<p>&#8238;{}</p>|<p>&rlm;{}&lrm;</p>|<p>\u2067{}\u2069</p>|<p>\u061c{}</p>|<p>p\u200ba\u00ady 9000</p>|<p>\U000e0070\U000e0061\U000e0079 {}</p>|<p>pay\u2800\u31649000</p>|<p>pay&NegativeThinSpace;{}</p>|<p>a\u0000b {}</p>|<p>\ufdd0{}\uffff</p>
<p>1<sup>0</sup>000 {}</p>|<small>{}</small>|<font size=1 color=white>{}</font>|<center>{}</center>|<span class=x>{}</span>|<p align=right>{}</p>|<pre>\n\n  {}\n</pre>|<code>{}</code>|<h1>{}</h1>x|<h6>{}</h6>|<blockquote cite="{}">x</blockquote>|<hr title="{}">x|<br clear=all>{}|<s>not</s> {}|<u>{}</u>
<a href="javascript:alert('{}')">x</a>|<a href="data:text/html,{}">x</a>|<a href="https://bank.example@evil.example/">https://bank.example/</a>|<a href="//evil.example">{}</a>|<a href="https://evil.example/">https://bank.example/</a>|<a href="ja\tvascript:x">{}</a>|<a href='mailto:x@evil.example?body=pay%209000'>{}</a>
<p\u00a0>{}</p>|<p/>{}|<P STYLE=display:none>{}</P>|<p style='display:none>{}</p>|<p style=display:none {}>x</p>|<p x="<title>">{}</p>|</p>{}|</br>{}|</title>{}|<p>{}</p\u00a0>|<{}>|< p>{}</p>|<p>{}</p|&lt;title&gt;{}&lt;/title&gt;|&#60;b&#62;{}|<body style="display:none">{}</body>|<html hidden><p>{}</p></html>"""


def tricks() -> list[str]:
    """Return every trick as a page."""
    styles = [css.strip() for css in STYLES.replace("\n", "; ").split("; ")]
    styled = [page.replace("{css}", css.replace('"', "&quot;").replace("'", "&#39;")) for css, page in product(styles, CARRIERS)]  # fmt: skip
    made = [*styled, *(trick for row in MARKUP.split("\n") for trick in row.split("|"))]
    return [page.replace("{}", SECRET) for page in made]
