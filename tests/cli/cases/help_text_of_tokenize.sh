# The whole text of one command, to see a change of the layout.
zerope tokenize --help
