package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// manCommand returns the command that writes the manual pages. Packages run it
// when they are built.
func manCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "man DIR",
		Short: "Write the manual pages to a directory",
		Long: `Write one manual page for each command to DIR, which is created if it does not
exist. The pages have the same text as --help. Their date is that of the
environment variable SOURCE_DATE_EPOCH (seconds since 1970), or today.`,
		Example: `  holdfast man /usr/local/share/man/man1
  man holdfast-serve`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return fmt.Errorf("create the directory of the manual pages: %w", err)
			}
			root := cmd.Root()
			root.DisableAutoGenTag = true // the tag contains the day of the build, which must not change the pages
			header := &doc.GenManHeader{Section: "1", Source: "Holdfast " + version, Manual: "Holdfast"}
			if err := doc.GenManTree(root, header, args[0]); err != nil {
				return fmt.Errorf("write manual pages: %w", err)
			}
			return nil
		},
	}
}
