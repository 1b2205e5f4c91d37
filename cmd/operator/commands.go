package operator

import "github.com/spf13/cobra"

// Commands returns the commands of this package.
func Commands() []*cobra.Command {
	return []*cobra.Command{
		statusCommand(), memberCommand(), healthCommand(),
		backupCommand(), restoreCommand(), inspectCommand(), recoverCommand(),
		importCommand(), debugCommand(),
	}
}
