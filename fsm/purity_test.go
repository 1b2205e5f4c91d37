package fsm_test

import (
	"fmt"
	"go/ast"
	"go/build"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// pureImports are the packages outside of fsm that fsm and the packages below it
// may import, with a reason where one is needed.
var pureImports = map[string]string{
	"bufio": "", "bytes": "", "cmp": "", "crypto/sha1": "names of scripts", "encoding/hex": "", "encoding/binary": "", "errors": "", "fmt": "", "hash/crc32": "", "hash/crc64": "", "iter": "", "math": "", "math/bits": "", "slices": "", "sort": "", "strconv": "", "strings": "", "unsafe": "strings and byte slices that share memory, such as those of codec.View",
	"unicode/utf8":             "",
	"io":                       "WriteSnapshot and ReadSnapshot are handed a writer and a reader",
	"math/big":                 "the sums of INCRBYFLOAT, in the width of Redis' long double on every machine",
	"github.com/tidwall/btree": "sorted indexes, such as those of deadlines, scripts and waiters",
}

// pureMath are the functions of package math that fsm and the packages below it may
// call. Their results do not depend on the processor, because IEEE 754 defines them
// exactly. The results of other functions (Sin, Log, Pow) may differ in the last bit
// between machines.
var pureMath = strings.Fields("Abs FMA Float64bits Float64frombits Inf IsInf IsNaN Round Sqrt Trunc")

// mapRanges are the allowed ranges over maps, each with the reason.
var mapRanges = map[string]string{
	"snapshot.go m.sessions": "the result is sorted by node",
}

// ourModule is the prefix of the import paths of our own packages.
const ourModule = "github.com/holdfast-kv/holdfast/"

// TestPurity checks that fsm and the packages below it do not use anything that
// differs between nodes: clocks, randomness, the operating system, goroutines,
// the order of maps, and products of floats that only some processors round
// before an addition.
func TestPurity(t *testing.T) {
	p := &purity{t: t, fset: token.NewFileSet(), used: make(map[string]bool)}
	for _, dir := range packageDirs(t) {
		p.check(dir)
	}
	p.checkLists()
}

// packageDirs returns the directories of fsm and of the packages below it.
func packageDirs(t *testing.T) []string {
	t.Helper()
	var dirs []string
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && d.Name() == "testdata":
			return fs.SkipDir
		case d.IsDir():
			dirs = append(dirs, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(dirs) < 2 {
		t.Fatal("no package below fsm found")
	}
	return dirs
}

// purity checks packages, and notes the imports, ranges and products in them.
type purity struct {
	t    *testing.T
	fset *token.FileSet
	used map[string]bool // imports and ranges over maps that were found
	// ranges counts the ranges over maps. products counts the products of
	// floats. The packages contain both, so a check that finds none is broken.
	ranges, products int
}

// check checks the package in a directory.
func (p *purity) check(dir string) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		p.t.Fatal(err)
	}
	var trees []*ast.File
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		tree, err := parser.ParseFile(p.fset, name, nil, 0)
		if err != nil {
			p.t.Fatal(err)
		}
		trees = append(trees, tree)
	}
	p.findRoot()
	info := typesOf(p.fset, trees)
	for _, tree := range trees {
		p.checkImports(tree)
		p.checkFile(tree, info)
	}
}

func (p *purity) checkImports(tree *ast.File) {
	for _, imp := range tree.Imports {
		path, err := strconv.Unquote(imp.Path.Value)
		if err != nil {
			p.t.Fatal(err)
		}
		if _, ok := pureImports[path]; !ok && path != ourModule+"fsm" && !strings.HasPrefix(path, ourModule+"fsm/") {
			p.t.Errorf("%s imports %s, which is not in pureImports", p.fset.Position(imp.Pos()), path)
		}
		p.used[path] = true
	}
}

func (p *purity) checkFile(tree *ast.File, info types.Info) {
	t, fset := p.t, p.fset
	rounded := make(map[ast.Expr]bool) // arguments of float64(…)
	ast.Inspect(tree, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			t.Errorf("%s starts a goroutine", fset.Position(n.Pos()))
		case *ast.SelectStmt, *ast.SendStmt, *ast.ChanType:
			t.Errorf("%s uses a channel", fset.Position(n.Pos()))
		case *ast.CallExpr:
			if f := source(n.Fun); f == "float64" && len(n.Args) == 1 {
				rounded[n.Args[0]] = true
			} else if name, ok := strings.CutPrefix(f, "math."); ok && !slices.Contains(pureMath, name) {
				t.Errorf("%s calls %s, which is not in pureMath", fset.Position(n.Pos()), f)
			}
		case *ast.BinaryExpr:
			if n.Op != token.MUL || !floating(info.Types[n]) {
				break
			}
			p.products++
			if !rounded[n] {
				t.Errorf("%s: a product of floats that is not rounded at once, by float64(…)", fset.Position(n.Pos()))
			}
		case *ast.AssignStmt:
			if n.Tok == token.MUL_ASSIGN && floating(info.Types[n.Lhs[0]]) {
				t.Errorf("%s: a product of floats that is not rounded at once, by float64(…)", fset.Position(n.Pos()))
			}
		case *ast.RangeStmt:
			p.checkRange(n, info)
		}
		return true
	})
}

func (p *purity) checkRange(n *ast.RangeStmt, info types.Info) {
	what, at := source(n.X), p.fset.Position(n.Pos())
	typ := info.Types[n.X].Type
	if typ == nil || typ == types.Typ[types.Invalid] {
		p.t.Errorf("%s: the type of %s is not known", at, what)
		return
	}
	if _, ok := typ.Underlying().(*types.Map); !ok {
		return
	}
	p.ranges++
	key := filepath.ToSlash(at.Filename) + " " + what
	if _, ok := mapRanges[key]; !ok {
		p.t.Errorf("%s ranges over a map that is not in mapRanges: %s", at, what)
	}
	p.used[key] = true
}

// checkLists checks that every item of pureImports and of mapRanges is in use, and
// that the check has found ranges over maps and products of floats.
func (p *purity) checkLists() {
	t, used := p.t, p.used
	for path := range pureImports {
		if !used[path] {
			t.Errorf("import %s is in pureImports, but no package uses it", path)
		}
	}
	for key := range mapRanges {
		if !used[key] {
			t.Errorf("the range %s is in mapRanges, but it does not exist", key)
		}
	}
	if p.ranges == 0 {
		t.Error("no range over a map found, although snapshot.go has one")
	}
	if p.products == 0 {
		t.Error("no product of floats found, although command/zsetop.go has one")
	}
}

// floating reports whether a value is a float that is computed at run time.
func floating(v types.TypeAndValue) bool {
	if v.Value != nil || v.Type == nil {
		return false
	}
	b, ok := v.Type.Underlying().(*types.Basic)
	return ok && b.Info()&types.IsFloat != 0
}

// findRoot tells go/build where the sources of Go are. A program that was compiled
// with -trimpath does not contain this path.
func (p *purity) findRoot() {
	if build.Default.GOROOT != "" {
		return
	}
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		p.t.Fatal(err)
	}
	build.Default.GOROOT = strings.TrimSpace(string(out))
}

// typesOf checks the types of a package. It loads our own packages and package
// math, because the check needs the types of their floats. It loads no other
// imports, so the types of their values are unknown: checkRange reports a range
// over such a value, but checkFile does not notice a product of such a value.
func typesOf(fset *token.FileSet, trees []*ast.File) types.Info {
	info := types.Info{Types: make(map[ast.Expr]types.TypeAndValue)}
	conf := types.Config{Importer: fewImports{importer.ForCompiler(fset, "source", nil).(types.ImporterFrom)}, Error: func(error) {}}
	_, _ = conf.Check("fsm", fset, trees, &info) // the errors are about imports that are not loaded
	return info
}

type fewImports struct{ types.ImporterFrom }

func (i fewImports) Import(path string) (*types.Package, error) {
	if path == "math" || strings.HasPrefix(path, ourModule) {
		return i.ImportFrom(path, ".", 0)
	}
	p := types.NewPackage(path, path[strings.LastIndex(path, "/")+1:])
	p.MarkComplete()
	return p, nil
}

func source(e ast.Expr) string {
	if s, ok := e.(*ast.SelectorExpr); ok {
		return fmt.Sprintf("%s.%s", source(s.X), s.Sel.Name)
	}
	if id, ok := e.(*ast.Ident); ok {
		return id.Name
	}
	return "?"
}
