// Command pages writes the code of test/recipes into the pages of docs/recipes.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/holdfast-kv/holdfast/test/recipes"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "pages:", err)
		os.Exit(1)
	}
}

func run() error {
	pages, err := filepath.Glob("docs/recipes/*.md")
	if err != nil {
		return err
	}
	for _, path := range pages {
		old, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		text, err := recipes.Page(string(old), "test/recipes")
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if text != string(old) {
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}
