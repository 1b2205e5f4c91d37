package recipes

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// A comment in a page names the file whose code the page shows. Page inserts
// this code after the comment: the part of the file between "page: begin" and
// "page: end".
const (
	codeMark = "<!-- code: "
	codeEnd  = "<!-- code end -->"
	pageFrom = "// page: begin\n"
	pageTo   = "// page: end\n"
)

// Page returns text with the current code of the files that it names. The files
// are in dir.
func Page(text, dir string) (string, error) {
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(text, codeMark)
		out.WriteString(before)
		if !found {
			return out.String(), nil
		}
		name, rest, ok := strings.Cut(rest, " -->\n")
		_, after, ok2 := strings.Cut(rest, codeEnd)
		if !ok || !ok2 {
			return "", fmt.Errorf("the mark for %q has no end", name)
		}
		source, err := os.ReadFile(filepath.Join(dir, filepath.Base(name)))
		if err != nil {
			return "", err
		}
		_, code, ok := strings.Cut(string(source), pageFrom)
		code, _, ok2 = strings.Cut(code, pageTo)
		if !ok || !ok2 {
			return "", fmt.Errorf("%s has no part between %q and %q", name, pageFrom, pageTo)
		}
		fmt.Fprintf(&out, "%s%s -->\n```go\n%s\n```\n%s", codeMark, name, strings.TrimSpace(code), codeEnd)
		text = after
	}
}
