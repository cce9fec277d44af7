"""The desk in the browser: the page on which a person reads letters, decides and looks back.

`app` maps addresses to `handlers`, which call the desk and render `templates` with values from `views`; `sessions` signs
browsers in; `live` has the background threads; `serve` runs the server. No module has a rule about letters.
"""
