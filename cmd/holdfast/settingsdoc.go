package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-kv/holdfast/resp"
	"github.com/holdfast-kv/holdfast/resp/parameter"
)

// settingsDocCommand returns the command that prints docs/config.md: see the
// Makefile.
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

<!-- Made by "make docs" from the tables of CONFIG. Do not edit: change resp/parameter/parameter.go. -->

The flags of a node configure it ("holdfast serve --help"). Clients and tools of
Redis also use CONFIG. "CONFIG GET" returns all parameters of Redis %s.
"CONFIG SET" checks all parameters of one call before it changes any of them,
and reports errors in the order in which Redis does. "CONFIG REWRITE" is
refused: no node changes the file of its --config. "CONFIG RESETSTAT" resets the
statistics of INFO to zero.

## Parameters with an effect

"lock-delay", "lock-idempotent", "maxmemory", "notify-keyspace-events" and
"requirepass" apply to all nodes and survive restarts. The others apply to the
node that executes the command, until that node restarts.

%s

## Parameters without effect

These parameters tune parts of Redis that Holdfast does not have. Holdfast
checks a value as Redis does and keeps it for the whole cluster, so that
"CONFIG GET" returns it on every node and after a restart. The value has no
other effect, and the log of the node says so when a client sets it. These
parameters need feature version 2 of the cluster, which the cluster has when all
nodes have been upgraded.

%s

## Refused parameters

Holdfast cannot do what these parameters promise. "CONFIG SET" accepts only the
current value.

| parameter | why |
|---|---|
%s
## Parameters that Redis also refuses

%s

## Limits of Holdfast

"CONFIG GET holdfast-*" returns the flags that limit clients, with "holdfast-"
before their names. A node reads its flags only when it starts, so "CONFIG SET"
refuses them. [limits.md](limits.md) describes them.
`

// writeSettingsDoc prints the page.
func writeSettingsDoc(out io.Writer) error {
	list := func(names []string) string { return wrapText("`" + strings.Join(names, "`, `") + "`.") }
	var refused strings.Builder
	names, reasons := parameter.Refusals()
	for i := range names {
		fmt.Fprintf(&refused, "| `%s` | %s |\n", names[i], reasons[i])
	}
	text := strings.ReplaceAll(settingsDocHead, `"`, "`")
	text = strings.Replace(text, "Made by `make docs`", `Made by "make docs"`, 1)
	_, err := fmt.Fprintf(out, text, resp.RedisVersion, list(resp.OwnSettings()), list(parameter.WithoutEffect()),
		refused.String(), list(parameter.Unchangeable()))
	return err
}
