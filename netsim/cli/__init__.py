"""The command line: one thin file a verb. The only room that prints and exits; it holds no physics."""
