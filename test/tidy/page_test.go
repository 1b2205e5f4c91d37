package tidy

import (
	"go/ast"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// page is one Markdown file.
type page struct {
	path  string // path from the root of the tree, with slashes
	lines []pageLine
}

// pageLine is one line of a page. code is true for the lines of a block of code
// and for the fences around it.
type pageLine struct {
	number int
	text   string
	code   bool
}

// pages returns all Markdown files of the tree.
func pages(t *testing.T) []page {
	t.Helper()
	paths, err := walk()
	if err != nil {
		t.Fatal(err)
	}
	var all []page
	for _, p := range paths {
		if path.Ext(p) != ".md" {
			continue
		}
		b, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(p)))
		if err != nil {
			t.Fatal(err)
		}
		pg, code := page{path: p}, false
		for i, line := range strings.Split(string(b), "\n") {
			fence := strings.HasPrefix(strings.TrimSpace(line), "```")
			pg.lines = append(pg.lines, pageLine{i + 1, line, code || fence})
			code = code != fence
		}
		all = append(all, pg)
	}
	if len(all) < 10 {
		t.Fatalf("%d pages found: is %s the root?", len(all), root)
	}
	return all
}

// maxProse is the width at which the prose of pages is wrapped.
const maxProse = 80

// unbreakable matches the parts of a line that cannot be divided: code in
// backticks, and the target of a link with the word before it.
var unbreakable = regexp.MustCompile("`[^`]*`|\\S*\\]\\([^)]*\\)")

// TestPages_AreWrapped checks the width of the prose of all pages. Tables,
// headings, blocks of code and comments have no limit.
func TestPages_AreWrapped(t *testing.T) {
	for _, p := range pages(t) {
		for _, l := range p.lines {
			text := strings.TrimSpace(l.text)
			if l.code || strings.HasPrefix(text, "|") || strings.HasPrefix(text, "#") ||
				strings.HasPrefix(text, "<!--") {
				continue
			}
			width := utf8.RuneCountInString(l.text)
			if width <= maxProse {
				continue
			}
			// A line that consists of one unbreakable part cannot be made shorter.
			glued := unbreakable.ReplaceAllString(strings.TrimLeft(text, "-0123456789. "), "x")
			if strings.ContainsAny(glued, " ") {
				t.Errorf("%s:%d: %d columns, wrap prose at %d", p.path, l.number, width, maxProse)
			}
		}
	}
}

var (
	codeSpan = regexp.MustCompile("`([^`]+)`")
	// testName matches the name of a test, without a file, a folder or a
	// subtest.
	testName = regexp.MustCompile(`^(Test|Fuzz|Benchmark)[A-Z]\w*$`)
	// goFile matches a Go file, perhaps with its folder or a wildcard.
	goFile = regexp.MustCompile(`^[\w*/.-]+\.go$`)
	// selector matches a function or a method with its package or type.
	selector = regexp.MustCompile(`^\*?([A-Za-z]\w*)\.([A-Za-z]\w*)$`)
)

// TestPages_NameWhatExists checks the names of files, folders, tests, make
// targets and declarations that pages mention in backticks.
func TestPages_NameWhatExists(t *testing.T) {
	paths, err := walk()
	if err != nil {
		t.Fatal(err)
	}
	tree := newTree(t, paths)
	found := 0
	for _, p := range pages(t) {
		for _, l := range p.lines {
			if l.code {
				continue
			}
			for _, m := range codeSpan.FindAllStringSubmatch(l.text, -1) {
				ok, known := tree.has(m[1])
				if !ok {
					t.Errorf("%s:%d: there is no `%s`", p.path, l.number, m[1])
				}
				if known {
					found++
				}
			}
		}
	}
	if found < 200 {
		t.Errorf("pages mention only %d names of this tree: do the patterns still match?", found)
	}
}

// tree contains the names of the source tree that pages may use.
type tree struct {
	files, folders, bases map[string]bool // bases are the file names without their folders
	tests, names, targets map[string]bool // names are declared in a Go file
	// members are the methods, fields and embedded types of each type. Types of
	// the same name in several packages share a set.
	members map[string]map[string]bool
}

// declare adds a method, a field or an embedded type of a type.
func (tr *tree) declare(typ, member string) {
	if tr.members[typ] == nil {
		tr.members[typ] = map[string]bool{}
	}
	tr.members[typ][member] = true
}

// baseType returns the name of the type of an expression such as *T, T[K] or
// pkg.T. It returns "" for other expressions.
func baseType(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.StarExpr:
		return baseType(e.X)
	case *ast.IndexExpr:
		return baseType(e.X)
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}

// hasMember reports whether a type, or a type that it embeds, has a method or a
// field.
func (tr *tree) hasMember(typ, name string, seen map[string]bool) bool {
	if seen[typ] {
		return false
	}
	seen[typ] = true
	if tr.members[typ][name] {
		return true
	}
	for member := range tr.members[typ] {
		if embedded, ok := strings.CutPrefix(member, "embeds "); ok && tr.hasMember(embedded, name, seen) {
			return true
		}
	}
	return false
}

func newTree(t *testing.T, paths []string) *tree {
	t.Helper()
	tr := &tree{files: map[string]bool{}, folders: map[string]bool{}, bases: map[string]bool{},
		tests: map[string]bool{},
		names: map[string]bool{}, targets: map[string]bool{}, members: map[string]map[string]bool{}}
	for _, p := range paths {
		tr.files[p] = true
		tr.bases[path.Base(p)] = true
		for dir := path.Dir(p); dir != "."; dir = path.Dir(dir) {
			tr.folders[dir] = true
		}
	}
	for _, s := range sources(t) {
		ast.Inspect(s.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				tr.names[n.Name.Name] = true
				if s.test() && n.Recv == nil {
					tr.tests[n.Name.Name] = true
				}
				if n.Recv != nil {
					tr.declare(baseType(n.Recv.List[0].Type), n.Name.Name)
				}
			case *ast.TypeSpec:
				tr.names[n.Name.Name] = true
				tr.declareType(n)
			case *ast.Field:
				for _, name := range n.Names {
					tr.names[name.Name] = true
				}
			case *ast.ValueSpec:
				for _, name := range n.Names {
					tr.names[name.Name] = true
				}
			}
			return true
		})
	}
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^([a-z-]+):`).FindAllSubmatch(makefile, -1) {
		tr.targets[string(m[1])] = true
	}
	return tr
}

// declareType adds the fields of a struct, or the methods of an interface.
func (tr *tree) declareType(spec *ast.TypeSpec) {
	var list *ast.FieldList
	switch typ := spec.Type.(type) {
	case *ast.StructType:
		list = typ.Fields
	case *ast.InterfaceType:
		list = typ.Methods
	default:
		return
	}
	for _, field := range list.List {
		for _, name := range field.Names {
			tr.declare(spec.Name.Name, name.Name)
		}
		if embedded := baseType(field.Type); len(field.Names) == 0 && embedded != "" {
			tr.declare(spec.Name.Name, "embeds "+embedded)
		}
	}
}

// has reports whether the tree contains what a span of code names. known is
// false if the span does not look like the name of a part of the tree.
func (tr *tree) has(span string) (ok, known bool) {
	span = strings.TrimSuffix(span, "/")
	if target, isMake := strings.CutPrefix(span, "make "); isMake {
		return tr.targets[strings.Fields(target)[0]], true
	}
	top, _, deeper := strings.Cut(span, "/")
	switch {
	case testName.MatchString(span):
		return tr.tests[span] || tr.prefixOfTest(span), true
	case goFile.MatchString(span):
		return tr.hasFile(span), true
	case deeper && tr.folders[top] && !strings.ContainsAny(span, " …*") && !strings.Contains(span, "NAME"):
		_, err := os.Stat(filepath.Join(root, filepath.FromSlash(span))) // the function walk leaves out testdata
		return err == nil, true
	}
	m := selector.FindStringSubmatch(span)
	switch {
	case m == nil || m[2] == "json" || m[2] == "db":
		return true, false
	case tr.folderNamed(m[1]) && tr.names[m[2]]:
		return true, true
	case tr.members[m[1]] != nil:
		return tr.hasMember(m[1], m[2], map[string]bool{}), true
	case tr.names[m[1]] || tr.folderNamed(m[1]):
		return tr.names[m[2]], true
	}
	return true, false
}

// prefixOfTest reports whether the name is the common beginning of several
// tests, as in "the TestPoints tests".
func (tr *tree) prefixOfTest(name string) bool {
	for test := range tr.tests {
		if strings.HasPrefix(test, name+"_") {
			return true
		}
	}
	return false
}

// folderNamed reports whether a folder of the tree has this name.
func (tr *tree) folderNamed(name string) bool {
	for dir := range tr.folders {
		if path.Base(dir) == name {
			return true
		}
	}
	return false
}

// hasFile reports whether the tree has a file. If the name contains no folder,
// a file with this name in any folder is sufficient.
func (tr *tree) hasFile(name string) bool {
	set := tr.files
	if !strings.Contains(name, "/") {
		set = tr.bases
	}
	for file := range set {
		if matched, err := path.Match(name, file); err == nil && matched {
			return true
		}
	}
	return false
}

// supported lists the packages that other programs may import.
var supported = []string{"lock"}

// TestPackages_AreNoAPI checks the packages at the top of the tree, except those
// in supported. The comment of each one must say that the package is not a
// supported API.
func TestPackages_AreNoAPI(t *testing.T) {
	says := map[string]bool{}
	for _, s := range sources(t) {
		if dir := s.dir(); dir != "." && !strings.Contains(dir, "/") {
			text := strings.Join(strings.Fields(s.ast.Doc.Text()), " ")
			says[dir] = says[dir] || strings.Contains(text, "not a supported API")
		}
	}
	if len(says) < 5 {
		t.Fatalf("%d packages at the top of the tree", len(says))
	}
	for _, dir := range slices.Sorted(maps.Keys(says)) {
		if !says[dir] && !slices.Contains(supported, dir) {
			t.Errorf("%s: the package comment does not say that it is not a supported API", dir)
		}
	}
}

// packageRow matches a row of the table of packages in docs/architecture.md.
var packageRow = regexp.MustCompile("^\\| `([a-z/]+)` \\| .* \\| ([^|]*) \\|$")

// TestArchitecture_ListsTheImports compares the table of packages in
// docs/architecture.md with mayImport. If a row describes its imports in words,
// such as "the packages below it", the test only checks that mayImport has the
// package.
func TestArchitecture_ListsTheImports(t *testing.T) {
	listed := map[string]bool{}
	for _, p := range pages(t) {
		if p.path != "docs/architecture.md" {
			continue
		}
		for _, l := range p.lines {
			m := packageRow.FindStringSubmatch(l.text)
			if m == nil {
				continue
			}
			allowed, known := mayImport[m[1]]
			listed[m[1]] = true
			if !known {
				t.Errorf("%s:%d: mayImport has no package %s", p.path, l.number, m[1])
			}
			var names []string
			for _, name := range codeSpan.FindAllStringSubmatch(m[2], -1) {
				names = append(names, name[1])
			}
			words := strings.Trim(codeSpan.ReplaceAllString(m[2], ""), " ,")
			if len(names) == 0 && words == "none of ours" || words == "" {
				slices.Sort(names)
				if want := slices.Sorted(slices.Values(allowed)); !slices.Equal(names, want) {
					t.Errorf("%s:%d: %s may import %v, and mayImport says %v", p.path, l.number, m[1], names, want)
				}
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(mayImport)) {
		if name != "test" && !listed[name] {
			t.Errorf("docs/architecture.md: the table of packages does not have %s", name)
		}
	}
}
