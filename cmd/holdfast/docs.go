package main

import "github.com/spf13/cobra"

func commandsDocCommand() *cobra.Command {
	return &cobra.Command{Use: "commands", Short: "Print docs/commands.md, made from the command table", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error { return nil }}
}
