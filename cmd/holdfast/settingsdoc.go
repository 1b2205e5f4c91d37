package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-kv/holdfast/resp"
)

// settingsDocCommand is how docs/config.md is made: see the Makefile.
func settingsDocCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "settings",
		Short:  "Print docs/config.md, made from the tables of CONFIG",
		Args:   cobra.NoArgs,
		Hidden: true,
		RunE:   func(cmd *cobra.Command, args []string) error { return writeSettingsDoc(cmd.OutOrStdout()) },
	}
}

const settingsDocHead = `# CONFIG

<!-- Made by "make docs" from the tables of CONFIG. Do not edit: change resp/parametertable.go. -->

A node is set up by its flags ("holdfast serve --help"). Clients and tools of Redis also use CONFIG. "CONFIG GET" knows all parameters of
Redis %s. "CONFIG SET" changes all parameters of one call or none, and finds what is wrong in the order of Redis. "CONFIG REWRITE" is
refused, because there is no configuration file; "CONFIG RESETSTAT" makes the statistics of INFO count from zero.

## With an effect

"notify-keyspace-events" and "requirepass" are in force on all nodes and survive restarts. The others concern the node that is asked, until it is
restarted.

%s

## Without effect

Tuning of Redis that has no meaning here. A value is checked as Redis checks it and kept for the whole cluster, so that "CONFIG GET" prints it on every
node and after a restart. Nothing else depends on it; the log of the node says so when it is set. They need feature version 2 of the cluster (every
node upgraded).

%s

## Refused

What "CONFIG SET" promises would not happen. Only the present value is accepted.

| parameter | why |
|---|---|
%s
## Refused by Redis too

%s
`

// writeSettingsDoc prints the page.
func writeSettingsDoc(out io.Writer) error {
	list := func(names []string) string { return "`" + strings.Join(names, "`, `") + "`." }
	var refused strings.Builder
	names, reasons := resp.RefusedParameters()
	for i := range names {
		fmt.Fprintf(&refused, "| `%s` | %s |\n", names[i], reasons[i])
	}
	text := strings.ReplaceAll(settingsDocHead, `"`, "`")
	text = strings.Replace(text, "Made by `make docs`", `Made by "make docs"`, 1)
	_, err := fmt.Fprintf(out, text, resp.RedisVersion, list(resp.OwnSettings()), list(resp.ParametersWithoutEffect()), refused.String(), list(resp.ImmutableParameters()))
	return err
}
