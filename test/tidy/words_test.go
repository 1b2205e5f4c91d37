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
// occur in an identifier, a comment, a text or a page, nor in a file of another
// language.
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
	"dealt":      "injected",
	"suspect":    "candidate order",
	"suspects":   "candidate order",
	"trial":      "dry run",
	"trials":     "dry runs",
	"fork":       "copy-on-write clone",
	"forks":      "copy-on-write clones",
	"contact":    "peer probe, or peer health",
	"judge":      "checker",
	"judges":     "checkers",
	"poked":      "signaled",
	"poking":     "signaling",
	"sown":       "bootstrapped",
	"weaving":    "interleaving",
	"rehearsing": "executing speculatively",
}

// retiredPhrases are phrases in which an ordinary word stands for a concept
// that now has another term. They must not occur in a comment, a text or a
// page. The words have other meanings too, so identifiers may contain them.
// Every match of a pattern contains the text in the field named word, in lower
// case.
var retiredPhrases = []struct {
	word    string
	pattern *regexp.Regexp
	term    string
}{
	{"turn", regexp.MustCompile(`\b(group.commit|the (proposer|leader)'s) turns?\b`), "group-commit wait"},
	{"round", regexp.MustCompile(`\brounds? of reads\b|\bconfirm rounds?\b`), "ReadIndex round"},
	{"tick", regexp.MustCompile(`\b(clock|lease|log) ticks?\b|\btick entr(y|ies)\b`), "clock entry"},
	{"moment", regexp.MustCompile(`\bmoments? (of|for) (a |the )?scripts?\b`), "script budget"},
	{"backlog", regexp.MustCompile(`(^|[^-.\w])backlogs?\b`), "asynchronous log writer"},
	{"reach", regexp.MustCompile(`\breach of (a|the) (peer|member|node)\b`), "peer probe, or peer health"},
	{"suffrage", regexp.MustCompile(`\bsuffrages?\b`), "vote guard, or voter"},
	{"in line", regexp.MustCompile(`\b(next|first|last|stands?|standing) in line\b`), "candidate order"},
	{"stand", regexp.MustCompile(`\bstand(s|ing)? for (election|leader)\b`), "campaign"},
	{"held", regexp.MustCompile(`\bheld waiters?\b|\bwaiters? (is|are|was|were) held\b`), "suspended waiter"},
	{"sink", regexp.MustCompile(`\bresult sinks?\b|\bsinks? of (results|replies)\b`), "result receiver"},
	{"place", regexp.MustCompile(`\bplaces? in (the|a|its) (log|list|queue)\b`), "log index, or position"},
	{"level", regexp.MustCompile(`\blevels? of the (cluster|state)\b|\bfeature levels?\b`), "feature version"},
	{"feed", regexp.MustCompile(`\bmonitor feeds?\b|\bfeeds? of monitor\b`), "MONITOR stream"},
	{"words", regexp.MustCompile(`\bwords of (a|the) row\b`), "flags"},
	{"blank", regexp.MustCompile(`\bblank (nodes?|votes?)\b`), "node without data, or vote without a log"},
	{"hangs on", regexp.MustCompile(`\bhangs on\b`), "depends on"},
	{"the knowing", regexp.MustCompile(`\bthe knowing\b`), "the nodes that know"},
	{"save", regexp.MustCompile(`, save (for|the|that)\b`), "except"},
	{"told so", regexp.MustCompile(`\btold so\b`), "gets an error"},
}

// checkPhrases reports the retired phrases in a text.
func checkPhrases(t *testing.T, at, text string) {
	t.Helper()
	text = strings.ToLower(text)
	for _, p := range retiredPhrases {
		if !strings.Contains(text, p.word) {
			continue
		}
		if found := p.pattern.FindString(text); found != "" {
			t.Errorf("%s: %q is retired: write %s (docs/glossary.md)", at, strings.TrimSpace(found), p.term)
		}
	}
}

// keptWords lists uses of a retired word that are allowed: a term of another
// project, or a part of a name in an older release. The key is a file and a
// word.
var keptWords = map[string]string{
	"CHANGELOG.md gateway": "names the metrics of older programs",
	"CHANGELOG.md offices": "names the metrics of older programs",

	"cmd/serve/inprocess.go fork": "names the lock of package syscall",
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

// isText reports whether a file that is not Go source is checked line by line, like
// a page.
func isText(path string) bool {
	switch filepath.Ext(path) {
	case ".md", ".py", ".js", ".html", ".css", ".yaml", ".yml", ".json", ".toml", ".sh", ".tpl", ".service", ".patch",
		".php", ".rb", ".lua", ".c":
		return true
	}
	switch filepath.Base(path) {
	case "Makefile", "Dockerfile", "run":
		return true
	}
	return false
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
					checkPhrases(t, s.at(n.Pos()), n.Value)
				}
			}
			return true
		})
		for _, group := range s.ast.Comments {
			for _, c := range group.List {
				checkWords(t, s.path, s.at(c.Pos()), c.Text)
			}
			checkPhrases(t, s.at(group.Pos()), strings.Join(strings.Fields(group.Text()), " "))
		}
	}
	paths, err := walk()
	if err != nil {
		t.Fatal(err)
	}
	pages := 0
	for _, p := range paths {
		if !isText(p) {
			continue
		}
		pages++
		b, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(p)))
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(b), "\n") {
			checkWords(t, p, p+":"+itoa(i+1), line)
			if filepath.Ext(p) != ".patch" || strings.HasPrefix(line, "#") { // the other lines of a patch are code
				checkPhrases(t, p+":"+itoa(i+1), line)
			}
		}
	}
	if pages < 10 {
		t.Fatalf("%d pages found: is %s the root?", pages, root)
	}
}
