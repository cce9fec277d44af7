"""Every finding of the risk card: its kind, its level, what the card says, and why it has that level.

`docs/risk.md` shows the same rows, and a test compares them. A level is changed here and there, nowhere else.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from postroom.core.card import Level, Line


class Finding(NamedTuple):
    """One row; `says` is the sentence of the card, with names in braces for what it is about."""

    kind: str
    level: Level
    says: str
    why: str


ROWS: Final = """
| domain_look_alike | look_alike | red | {domain} looks like {known}, which you know, but is not it. | The letter may go to somebody who poses as a person you know. |
| address_look_alike | look_alike | red | {address} looks like {known}, whom you have written to, but is another address. | The same, at a provider where anybody gets an address. |
| domains_unread | look_alike | red | Only {read} of {all} domains were compared with those you know. | What was not compared may be a look-alike. |
| domain_alphabets | mixed_scripts | red | {domain} is shown as {shown}: it mixes alphabets. | Letters of another alphabet pass for those that you expect. |
| name_alphabets | mixed_scripts | amber | The name of {address} mixes alphabets. | A name decides nothing, but may mislead you. |
| address_from_mail | from_mail | red | The agent got {address} from {source}. | You have never written to this address, and a mail named it anywhere but as its own sender: that is how injected instructions choose a recipient. |
| address_from_recipient | from_mail | amber | The agent got {address} from {source}, and the letter goes to that sender too. | Somebody whom you have written to named the address, and will see that the letter goes there. |
| link_from_mail | from_mail | red | The agent got a link to {host} from {source}. | The letter carries a stranger's link to others in your name. |
| number_from_mail | from_mail | red | The agent got a number in the letter from {source}. | An account number in your name can send money to the wrong place. |
| code_from_mail | from_mail | red | The agent got a code in the letter from {source}. | A one-time code opens an account of yours. |
| link_returned | from_mail | fact | The link to {host} came from {source}. | Lowered from amber: it goes to the only person who wrote it, or to its writer whom you have written to before. |
| number_returned | from_mail | fact | A number in the letter came from {source}. | Lowered from amber: as above. |
| secret | secrets | red | {places} to contain {what}. | What is sent cannot be taken back. |
| secret_unsure | secrets | amber | {places} to contain {what}. | It may be a key, or the number of a parcel. |
| secret_file | secrets | red | {places} to be a file that is made to hold secrets. | By its name: keys, tokens, wallets. |
| link_unread | links | red | What is beyond was not read: {items}. | What was not read may be anything. |
| link_runs | links | red | A link runs code or holds a page in itself: {items}. | It acts as soon as it is opened. |
| link_reaches | links | red | A link reaches into the reader's own machine or network: {items}. | It opens files or gives away a password's hash. |
| link_hides | links | red | A name before the @ hides where a link leads: {items}. | The reader takes the name for the host. |
| link_numeric | links | red | A link leads to a number instead of a name: {items}. | Nobody can see whose it is. |
| link_lies | links | red | A link shows {shown} and leads elsewhere: {items}. | The reader is deceived. |
| link_alphabets | links | red | A host is written in letters that look like others: {items}. | It passes for another host. |
| link_look_alike | links | red | A host looks like {known} and is not it: {items}. | It passes for a domain that you know. |
| links_many | links | red | Links lead to {all} hosts, more than were compared with known ones. | What was not compared may be a look-alike. |
| link_ending | links | amber | A host looks like {known} but ends differently: {items}. | Another ending is often another owner, and often the same. |
| link_picture | links | amber | A picture stands in the text itself and was not looked at: {items}. | It could not be checked. |
| link_program | links | amber | A link opens another program: {items}. | What the program does with it is not known. |
| link_script | links | amber | A host is written in another script: {items}. | You may not be able to read it. |
| link_port | links | amber | A link names an unusual port: {items}. | Few honest links do. |
| link_short | links | amber | A shortener hides where a link leads: {items}. | It could not be checked. |
| link_long | links | amber | A link is long enough to carry text out: {items}. | Data can hide in it. |
| link_disguised | links | amber | A link is spelled so that filters miss it: {items}. | Somebody did not want it to be found. |
| link | links | fact | Links lead to: {items}. | A plain description. |
| remote_markdown | remote_images | red | Showing its Markdown tells these hosts, and the address can carry text out: {items}. | It needs no click, where Markdown is rendered. |
| file_acts | attachment | red | {file}; it can run or act when opened. | The reader trusts what comes from you. |
| file_poses | attachment | red | {file}; its name poses as another type. | The reader is deceived. |
| file_macros | attachment | red | {file}; it holds macros. | It can run when opened. |
| file_packed | attachment | red | {file}; what is packed in it was not looked at. | It could not be checked. |
| file_type | attachment | red | {file}; its name and its type disagree. | One of them is wrong. |
| files_unread | attachment | red | Only {read} of {all} files were looked at. | What was not looked at may be anything. |
| file_unread | attachment | amber | {file}; only its beginning was searched for secrets. | The rest could not be checked. |
| file_from_mail | attachment | amber | {file}. | A stranger's file goes out in your name. |
| file | attachment | fact | {file}. | A plain description. |
| first_contact | first_contact | amber | You have never written to {items}. | A wrong recipient is most often a new one. |
| growth | growth | amber | Not in the conversation so far: {items}. | They will read what was meant for others. |
| bcc | bcc | amber | Blind copies, unseen by the others, go to {items}. | The other recipients cannot notice it. |
| reply_to | reply_to | amber | Answers will go to {items}. | The answer goes outside of your domain. |
| outside_domain | outside_domain | fact | Goes outside your domain, to {items}. | A plain description. |
| many | many | fact | Goes to {all} recipients. | A plain description. |
| hidden_text | hidden | red | It holds {all} characters that nobody sees and that can carry a message. | A recipient's program can read what you cannot. |
| hidden_few | hidden | amber | It holds {all} characters that nobody sees. | Too few to carry much. |
| repeat | repeat | amber | The same text was written before: {letters}. | It may be sent twice by mistake. |
| automatic | automatic | amber | It answers a mail that was sent automatically. | Two machines may answer each other. |
| refrozen | refrozen | amber | Postroom was upgraded and wrote this letter anew: read it again before you approve it. {why} | What you saw before may differ. |
| unchecked | unchecked | amber | Not all was looked up: {why}. | What could not be checked is at least amber. |
| empty | empty | fact | It has no text and no attachment. | A plain description. |
| no_subject | empty | fact | It has no subject. | A plain description. |
"""
LEVELS: Final = {"red": Level.STOP, "amber": Level.LOOK, "fact": Level.PLAIN}


def _table() -> dict[str, Finding]:
    rows = (row.strip("| ").split(" | ") for row in ROWS.strip().split("\n"))
    return {name: Finding(kind, LEVELS[level], *texts) for name, kind, level, *texts in rows}


FINDINGS: Final = _table()


def found(name: str, **about: object) -> Line:
    """Return the line of a card for a finding; `about` fills the braces of its sentence."""
    finding = FINDINGS[name]
    return Line(finding.level, finding.kind, finding.says.format(**about))
