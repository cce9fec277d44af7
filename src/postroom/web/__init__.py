"""The desk in the browser: the page on which a person reads letters, decides and looks back.

`serve` maps addresses to `handlers`, which call the desk and render `templates`, and runs the server; `request` has the guard
in front of them and the form, `sessions` signs browsers in, `live` has the background threads. No module has a rule about letters.
"""
