// Command draw prints a random sample of the project's prose: comments, texts
// of logs and errors, and paragraphs of the documentation. Its purpose is to
// find sentences that a reader has to read twice.
//
//	go run ./test/tidy/draw -seed 7 -under test
//
// The same seed draws the same sample from the same tree. With -since COMMIT,
// it draws only from texts that have changed since that commit.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

func main() {
	seed := flag.Uint64("seed", 1, "seed of the draw")
	comments := flag.Int("comments", 40, "number of comments")
	texts := flag.Int("texts", 20, "number of texts of logs and errors")
	paragraphs := flag.Int("paragraphs", 20, "number of paragraphs of the documentation")
	root := flag.String("root", ".", "top folder of the project")
	under := flag.String("under", "", "draw only from this folder and the folders below it")
	since := flag.String("since", "", "draw only texts that have changed since this commit")
	flag.Parse()
	p, err := gather(filepath.Join(*root, *under))
	if err == nil && *since != "" {
		err = p.onlySince(*root, *since)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "draw:", err)
		os.Exit(1)
	}
	rnd := rand.New(rand.NewPCG(*seed, 0))
	for _, part := range []struct {
		name  string
		items []item
		count int
	}{{"comments", p.comments, *comments}, {"texts", p.texts, *texts}, {"paragraphs", p.paragraphs, *paragraphs}} {
		fmt.Printf("==== %s: %d of %d\n", part.name, min(part.count, len(part.items)), len(part.items))
		rnd.Shuffle(len(part.items), func(i, j int) { part.items[i], part.items[j] = part.items[j], part.items[i] })
		for _, it := range part.items[:min(part.count, len(part.items))] {
			fmt.Printf("\n%s:%d\n%s\n", it.file, it.first, it.text)
		}
		fmt.Println()
	}
}

// item is a piece of prose and its lines in a file.
type item struct {
	file        string
	first, last int
	text        string
}

// prose is all prose of a tree, in the order of its files.
type prose struct{ comments, texts, paragraphs []item }

// minWords is the number of words below which a piece of prose is not drawn.
const minWords = 5

func gather(root string) (*prose, error) {
	p := &prose{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			if path != root && strings.HasPrefix(name, ".") || name == "testdata" || name == "bin" {
				return filepath.SkipDir
			}
			return nil
		}
		switch filepath.Ext(name) {
		case ".go":
			return p.source(path)
		case ".md":
			return p.page(path)
		}
		return nil
	})
	return p, err
}

// source adds the comments of a Go file. It also adds the texts of log lines
// and errors, except those of test files.
func (p *prose) source(path string) error {
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, path, nil, parser.ParseComments)
	if err != nil || ast.IsGenerated(f) {
		return err
	}
	add := func(to *[]item, n ast.Node, text string) {
		if len(strings.Fields(text)) >= minWords {
			first, last := set.Position(n.Pos()).Line, set.Position(n.End()).Line
			*to = append(*to, item{path, first, last, strings.TrimSpace(text)})
		}
	}
	for _, c := range f.Comments {
		add(&p.comments, c, c.Text())
	}
	if strings.HasSuffix(path, "_test.go") {
		return nil
	}
	spoken := []string{"Debug", "Info", "Warn", "Error", "New", "Errorf", "Fprintf", "Fprintln", "Printf", "Println"}
	ast.Inspect(f, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		if fun, ok := call.Fun.(*ast.SelectorExpr); !ok || !slices.Contains(spoken, fun.Sel.Name) {
			return true
		}
		for _, arg := range call.Args {
			if lit, ok := arg.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				if text, err := strconv.Unquote(lit.Value); err == nil {
					add(&p.texts, lit, text)
				}
			}
		}
		return true
	})
	return nil
}

// listItem matches the beginning of an item of a list.
var listItem = regexp.MustCompile(`^\s*([-*]|\d+\.)\s`)

// page adds the paragraphs, the items of lists and the rows of tables of a
// Markdown page. It leaves out code, headings and comments. It also leaves out
// the tables of generated pages, because they contain names and texts of Redis.
func (p *prose) page(path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	generated := bytes.Contains(b, []byte("<!-- Made by")) || bytes.Contains(b, []byte("runs everything on this page"))
	var lines []string
	begin, code := 0, false
	end := func() {
		if text := strings.Join(lines, "\n"); len(strings.Fields(text)) >= minWords {
			p.paragraphs = append(p.paragraphs, item{path, begin, begin + len(lines) - 1, text})
		}
		lines = nil
	}
	all := strings.Split(string(b), "\n")
	for i, line := range all {
		text := strings.TrimSpace(line)
		fence, row := strings.HasPrefix(text, "```"), strings.HasPrefix(text, "|")
		if fence || code || text == "" || strings.HasPrefix(text, "#") || strings.HasPrefix(text, "<!--") {
			end()
			code = code != fence
			continue
		}
		head := row && i+1 < len(all) && strings.HasPrefix(all[i+1], "|---")
		if row && (generated || head || strings.HasPrefix(text, "|---")) {
			end()
			continue
		}
		if row || listItem.MatchString(line) {
			end()
		}
		if len(lines) == 0 {
			begin = i + 1
		}
		lines = append(lines, line)
	}
	end()
	return nil
}

// hunk matches the head of a hunk of a diff, with the number of the first new
// line and the count of new lines. The count is 1 if it is missing.
var hunk = regexp.MustCompile(`^@@ -\S+ \+(\d+)(?:,(\d+))? @@`)

// onlySince drops each piece of prose in which no line has changed since a
// commit. It keeps the prose of new files, even of files that git does not
// track yet.
func (p *prose) onlySince(root, commit string) error {
	diff, err := git(root, "diff", "--no-color", "-U0", "-M", "--relative", commit)
	if err != nil {
		return err
	}
	untracked, err := git(root, "ls-files", "--others", "--exclude-standard")
	if err != nil {
		return err
	}
	changed := map[string]map[int]bool{}
	for _, file := range strings.Fields(untracked) {
		changed[filepath.Join(root, file)] = nil
	}
	file := ""
	for line := range strings.Lines(diff) {
		if name, ok := strings.CutPrefix(line, "+++ b/"); ok {
			file = filepath.Join(root, strings.TrimSpace(name))
			changed[file] = map[int]bool{}
		}
		m := hunk.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		first, _ := strconv.Atoi(m[1]) // the pattern matches only numbers
		count := 1
		if m[2] != "" {
			count, _ = strconv.Atoi(m[2])
		}
		for n := first; n < first+count; n++ {
			changed[file][n] = true
		}
	}
	unchanged := func(it item) bool {
		lines, ok := changed[filepath.Clean(it.file)]
		for n := it.first; n <= it.last; n++ {
			if lines[n] {
				return false
			}
		}
		return !ok || lines != nil
	}
	for _, list := range []*[]item{&p.comments, &p.texts, &p.paragraphs} {
		*list = slices.DeleteFunc(*list, unchanged)
	}
	return nil
}

// git runs a git command in a directory and returns its output.
func git(dir string, args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", strings.Join(args, " "), err)
	}
	return string(out), nil
}
