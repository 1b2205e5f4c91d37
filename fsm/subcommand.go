package fsm

import "strings"

// subcommand runs the subcommand of a container command.
func (c *Ctx) subcommand(args [][]byte) Reply {
	cmd := c.m.table.Find(args[0])
	sub := cmd.FindSub(args[1])
	switch {
	case sub == nil:
		return Error(UnknownSubcommand(args[1], strings.ToUpper(cmd.Name)))
	case !sub.ArityOK(len(args)):
		return Error(WrongArity(cmd.Name + "|" + sub.Name))
	}
	return sub.Run(c, args)
}

// wrongSubcommand returns the error for options that a subcommand does not
// have.
func wrongSubcommand(args [][]byte) Reply {
	return Error("ERR unknown subcommand or wrong number of arguments for '" + clip(args[1], 128) + "'. Try " + strings.ToUpper(string(args[0])) + " HELP.")
}

// help returns the reply to the HELP subcommand of a container command.
func help(container string, lines ...string) Reply {
	replies := []Reply{Simple(container + " <subcommand> [<arg> [value] [opt] ...]. Subcommands are:")}
	for _, line := range append(lines, "HELP", "    Prints this help.") {
		replies = append(replies, Simple(line))
	}
	return Array(replies)
}
