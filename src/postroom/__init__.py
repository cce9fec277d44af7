"""Postroom: the post room for AI agents.

Agents read mail, write letters, keep notes and write to each other; nothing is sent until a
person has approved it.

The rooms, from the door inwards. A line imports only from lines below it, and import-linter
guards that::

    cli        the terminal: the commands (main has their table), what they share (ui);
               no rules
    tools      what agents see: tables of tools, answers, and the servers that speak MCP: on stdio our own
               (wire), over HTTP the SDK's (serve)
    web        what a person sees in the browser: the queue, the letter, signing in
    orchestrator  `postroom run`: watcher, triage (rules or a model, and the answers), the loop and its dashboard (run);
               it reads through MCP servers (client, context)
    wiring     opens the desk and the mailboxes of these settings; the only place that names a provider
    sample     a made-up mailbox and the script of the demo
    services   what is done besides letters: mailbox (reading and filing mail), notebook, correspondence (between
               agents), inbox (mail that came in) and incoming (its texts); services opens each at its first use
    desk       letters: proposals, verdicts, dispatch, proofs, notes (plan, apply), limits, log; one queue.
               exposure: which mail showed what to an agent
    vault      notes: frontmatter that survives, confined paths, the table of folders and who may do
               what there, links, and the search index with its keeper
    agents     letters between agents: the original's files, who is who, tmux, the mailman
    mail       where mail lives: the protocols, MIME, and one package or module a provider
    review     what code finds in a text, and the risk card: links, tokens, risk; word lists, patterns and the table
               of findings are data files beside them
    store      what survives crashes and several processes: the ledger (one noun a class, SQL for any engine),
               SQLite, atomic files, locks, tokens, desk ids
    config     postroom.toml and the environment: one row a setting, parsed into frozen values
    core       pure values and rules, no I/O: errors, text, address, message, query, letter, life, policy, audit,
               records (risk cards and what the store returns), outgoing_html, mail_view, handbook, stop (the event that
               a signal sets)

Where does a line belong? If it would change with the provider: mail. With the wire contract:
tools, web and cli. With the rule: core. With the order of effects: desk. With the machine:
config and wiring.

Everything is synchronous except the HTTP servers (`tools/serve`, `web`), which call the rest in worker threads,
and the MCP clients of the orchestrator. The local mailbox is the test double: it ships, it is
the default, and it passes the same contract suite as every other provider.
"""

__version__ = "0.1.0"
