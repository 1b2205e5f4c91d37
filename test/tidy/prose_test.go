package tidy

import (
	"go/ast"
	"go/token"
	"regexp"
	"strings"
	"testing"
)

// habit is a way of writing that makes readers stop or read a sentence twice.
type habit struct {
	pattern *regexp.Regexp
	advice  string
}

// habits are the habits that a pattern can recognize in a comment, a text or a
// page.
var habits = []habit{
	{regexp.MustCompile(`(^|[.:] )(What|Who|Whoever|Whose|Whatever) [^?]*\.( |$)`),
		"begin the sentence with the noun that the clause is about"},
	{regexp.MustCompile(`(?i)\b(he|him|his|somebody|someone|nobody|no one|anybody|everybody)\b`),
		"name the node, the client or the operator"},
	{regexp.MustCompile(`(?i)\b(tell|tells|told)( \w+){0,4} apart\b|\b(told|tell) \w+ from\b|\btold from\b`),
		"write distinguish"},
	{regexp.MustCompile(`(?i)\b(is|are|was|were|be|been|has|have) (not )?told\b`),
		"name the reply, the message or the error that the client gets"},
	{regexp.MustCompile(`\b[Aa]nswers (0|1|OK|nil|null)\b`),
		"a command returns a value, and a node replies to a client"},
	{regexp.MustCompile(`(?i)^the (most|least) \w+ (of|in) `),
		"write maximum or minimum number"},
	{regexp.MustCompile(`\breturns about\b`), "write estimates"},
	{regexp.MustCompile(`(?i)\b(for|by) what it's worth\b|\bneedless to say\b|\bof course\b|\bliar\b`),
		"leave it out"},
	{regexp.MustCompile(`(?i)\b(go|goes|going|went) on\b`), "write continue"},
	{regexp.MustCompile(`(?i)\banew\b`), "write again, or a verb such as reload, reopen or replace"},
	{regexp.MustCompile(`(?i)\bpresent (entry|feature|leader|number|owner|size|state|wait|window)s?\b`),
		"write current"},
	{regexp.MustCompile(`(?i)\bany more\b`), "write no longer"},
	{regexp.MustCompile(`(?i)\blate ?comers?\b|\b(become|becomes|became) of\b`), "name what happens"},
	{regexp.MustCompile(`(?i)\b(\w*[^e\W]|\w*[^r]e) (is|are) no (majority|member|terminal|voter|string)\b`), "write is not a"},
}

// TestProse_HasNoHabits checks that no pattern of habits matches a comment, a text
// of the program or a page.
func TestProse_HasNoHabits(t *testing.T) {
	check := func(at, text string) {
		for _, h := range habits {
			if found := h.pattern.FindString(text); found != "" {
				t.Errorf("%s: %q: %s", at, strings.TrimSpace(found), h.advice)
			}
		}
	}
	for _, s := range sources(t) {
		if s.path == "test/tidy/prose_test.go" {
			continue
		}
		for _, group := range s.ast.Comments {
			check(s.at(group.Pos()), strings.Join(strings.Fields(group.Text()), " "))
		}
		if s.test() {
			continue
		}
		ast.Inspect(s.ast, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING && strings.Count(lit.Value, " ") > 3 {
				check(s.at(lit.Pos()), strings.Trim(lit.Value, "\"`"))
			}
			return true
		})
	}
	for _, p := range pages(t) {
		for _, l := range p.lines {
			if !l.code {
				check(p.path+":"+itoa(l.number), strings.TrimLeft(l.text, " -*"))
			}
		}
	}
}

// TestProse_FragmentsHaveANoun finds comments that begin with "of". Such a
// comment does not name the thing that it describes.
func TestProse_FragmentsHaveANoun(t *testing.T) {
	for _, s := range sources(t) {
		for _, group := range s.ast.Comments {
			text := group.Text()
			if strings.HasPrefix(text, "of ") && !strings.HasPrefix(text, "of returns") {
				t.Errorf("%s: %q: begin with the noun", s.at(group.Pos()), strings.TrimSpace(text))
			}
		}
	}
}

// firstWord matches the word with which the comment of a declaration begins.
var firstWord = regexp.MustCompile(`^[A-Za-z_]\w*`)

// TestProse_CommentsNameTheirFunction finds comments of functions that begin
// with the name of another function of the same package.
func TestProse_CommentsNameTheirFunction(t *testing.T) {
	declared := map[string]map[string]bool{}
	each := func(f func(s source, decl *ast.FuncDecl)) {
		for _, s := range sources(t) {
			for _, decl := range s.ast.Decls {
				if decl, ok := decl.(*ast.FuncDecl); ok {
					f(s, decl)
				}
			}
		}
	}
	each(func(s source, decl *ast.FuncDecl) {
		if declared[s.dir()] == nil {
			declared[s.dir()] = map[string]bool{}
		}
		declared[s.dir()][decl.Name.Name] = true
	})
	each(func(s source, decl *ast.FuncDecl) {
		if decl.Doc == nil {
			return
		}
		word := firstWord.FindString(decl.Doc.Text())
		if s.test() && strings.HasPrefix(decl.Name.Name, "Test") {
			return // the comment of a test may begin with the function under test
		}
		if word != decl.Name.Name && declared[s.dir()][word] {
			t.Errorf("%s: the comment of %s begins with the name of another function, %s", s.at(decl.Pos()),
				decl.Name.Name, word)
		}
	})
}

var (
	// codeWord matches a word that can only be an identifier: it begins with
	// lower-case letters and has an upper-case letter after them.
	codeWord = regexp.MustCompile(`\b[a-z]+[A-Z]\w*\b`)
	// quotedText matches parts of a comment that look like identifiers but are
	// not: quoted texts, escape sequences, options, paths and addresses.
	quotedText = regexp.MustCompile("\"[^\"]*\"|`[^`]*`|[\\w.:/<%#\\\\-]*[/<%#\\\\-][\\w.:/<>-]*")
	// foreignNames are words in comments that look like code and that the tree does
	// not declare: identifiers of other projects, and macOS.
	foreignNames = map[string]bool{"luaO_chunkid": true, "macOS": true, "processCommand": true, "recoverTail": true,
		"securityWarningCommand": true}
)

// TestProse_NamesWhatExists finds comments, outside of test files, that mention
// an identifier unknown to the tree.
func TestProse_NamesWhatExists(t *testing.T) {
	names := map[string]bool{}
	for _, s := range sources(t) {
		ast.Inspect(s.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.Ident:
				names[n.Name] = true
			case *ast.BasicLit:
				for _, word := range codeWord.FindAllString(n.Value, -1) {
					names[word] = true
				}
			}
			return true
		})
	}
	for _, s := range sources(t) {
		if s.test() {
			continue
		}
		for _, group := range s.ast.Comments {
			text := quotedText.ReplaceAllString(group.Text(), " ")
			for _, word := range codeWord.FindAllString(text, -1) {
				if !names[word] && !foreignNames[word] {
					t.Errorf("%s: there is no %s", s.at(group.Pos()), word)
				}
			}
		}
	}
}
