"""The desk in the browser: the page on which a person reads, decides and looks back.

`app` has the addresses and calls the desk; `pages`, `sheet` and `records` turn what it gives into HTML and know no rule;
`door` lets people in; `live` tells open pages what changed and sends what is due; `serve` listens.
"""
