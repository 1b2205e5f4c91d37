package tidy

import (
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"
)

// retired lists words that the project no longer uses for its own concepts,
// each with the term that docs/glossary.md has in its place. They must not
// occur in an identifier, a comment, a text or a page.
var retired = map[string]string{
	"office":     "leadership",
	"offices":    "leaderships",
	"gateway":    "forwarder",
	"gateways":   "forwarders",
	"rehearse":   "execute speculatively",
	"rehearses":  "executes speculatively",
	"rehearsed":  "executed speculatively",
	"rehearsal":  "speculative execution",
	"rehearsals": "speculative executions",
	"overdue":    "expired, with an expiry that is not committed yet",
	"patience":   "script budget",
	"weave":      "interleave",
	"weaves":     "interleaves",
	"woven":      "interleaved",
	"poke":       "signal",
	"pokes":      "signals",
	"sow":        "bootstrap",
	"seeded":     "injected bug",
	"spike":      "latency event",
	"spikes":     "latency events",
	"oracle":     "checker",
	"oracles":    "checkers",
	"strike":     "fault, or injection",
	"strikes":    "faults, or injections",
}

// keptWords lists uses of a retired word that are allowed: a term of another
// project, or a part of a name that a user of an older release may still meet.
// The key is a file and a word.
var keptWords = map[string]string{
	"CHANGELOG.md gateway": "names the metrics of older programs",
	"CHANGELOG.md offices": "names the metrics of older programs",
}

var word = regexp.MustCompile(`[A-Za-z]+`)

// checkWords reports the retired words in a text.
func checkWords(t *testing.T, file, at, text string) {
	t.Helper()
	for _, w := range word.FindAllString(text, -1) {
		for _, part := range append(camel(w), w) {
			low := strings.ToLower(part)
			term, found := retired[low]
			if found && keptWords[file+" "+low] == "" {
				t.Errorf("%s: %q is retired: write %s (docs/glossary.md)", at, part, term)
				break
			}
		}
	}
}

// camel splits an identifier at its capital letters.
func camel(s string) []string {
	var parts []string
	begin := 0
	for i, r := range s {
		if i > 0 && unicode.IsUpper(r) {
			parts = append(parts, s[begin:i])
			begin = i
		}
	}
	return append(parts, s[begin:])
}

func TestWords_AreNotRetired(t *testing.T) {
	for _, s := range sources(t) {
		if s.path == "test/tidy/words_test.go" {
			continue
		}
		checkWords(t, s.path, s.path, s.path)
		ast.Inspect(s.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.Ident:
				checkWords(t, s.path, s.at(n.Pos()), n.Name)
			case *ast.BasicLit: // a text: a log line, an error, a failure
				if n.Kind == token.STRING {
					checkWords(t, s.path, s.at(n.Pos()), n.Value)
				}
			}
			return true
		})
		for _, group := range s.ast.Comments {
			for _, c := range group.List {
				checkWords(t, s.path, s.at(c.Pos()), c.Text)
			}
		}
	}
	paths, err := walk()
	if err != nil {
		t.Fatal(err)
	}
	pages := 0
	for _, p := range paths {
		if filepath.Ext(p) != ".md" {
			continue
		}
		pages++
		b, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(p)))
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(b), "\n") {
			checkWords(t, p, p+":"+itoa(i+1), line)
		}
	}
	if pages < 10 {
		t.Fatalf("%d pages found: is %s the root?", pages, root)
	}
}
