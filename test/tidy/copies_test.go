package tidy

import (
	"bytes"
	"go/ast"
	"go/printer"
	"strings"
	"testing"
)

// smallBody is the largest number of lines of a function body that may occur in
// several packages. Such a small function only stubs a method of an interface,
// or makes one call.
const smallBody = 3

// TestHelpers_AreNotCopied checks that the tests of two packages do not contain
// the same function. Helpers for the tests of several packages belong in
// test/testutil, or in verify.
func TestHelpers_AreNotCopied(t *testing.T) {
	first := make(map[string]source)
	bodies := 0
	for _, s := range sources(t) {
		if !s.test() && !strings.HasPrefix(s.path, "test/") {
			continue
		}
		for _, decl := range s.ast.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || f.Body == nil {
				continue
			}
			var b bytes.Buffer
			if err := printer.Fprint(&b, s.fset, f.Body); err != nil {
				t.Fatal(err)
			}
			body := b.String()
			if strings.Count(body, "\n") < smallBody {
				continue
			}
			bodies++
			if other, found := first[body]; !found {
				first[body] = s
			} else if other.dir() != s.dir() {
				t.Errorf("%s: %s has the same body as a function in %s: share it in test/testutil",
					s.at(f.Pos()), f.Name.Name, other.path)
			}
		}
	}
	if bodies < 1000 {
		t.Fatalf("%d functions found: is %s the root?", bodies, root)
	}
}
