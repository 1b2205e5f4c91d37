package compat

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/fsm/command"
)

// TestCoverage requires that the tests of this package send every command of
// the table, subcommands included, except the internal commands. It searches
// for each command at the beginning of the string literals of the tests.
func TestCoverage(t *testing.T) {
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]bool)
	for _, file := range files {
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		tree, err := parser.ParseFile(token.NewFileSet(), file, src, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			lit, ok := n.(*ast.BasicLit)
			if !ok || lit.Kind != token.STRING {
				return true
			}
			if s, err := strconv.Unquote(lit.Value); err == nil {
				fields := strings.Fields(strings.ToLower(s))
				for i := range fields {
					seen[strings.Join(fields[:i+1], " ")] = true
					if i == 1 {
						break
					}
				}
			}
			return true
		})
	}
	for _, cmd := range command.NewTable().Rows() {
		if cmd.Flags&fsm.Internal != 0 {
			continue
		}
		if !seen[cmd.Name] {
			t.Errorf("no line compares %s", strings.ToUpper(cmd.Name))
		}
		for _, sub := range cmd.Sub {
			if !seen[cmd.Name+" "+sub.Name] {
				t.Errorf("no line compares %s %s", strings.ToUpper(cmd.Name), strings.ToUpper(sub.Name))
			}
		}
	}
}
