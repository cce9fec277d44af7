"""The words and rules of the post room: pure values, no I/O, no clock, no framework."""
