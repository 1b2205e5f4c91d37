package fsm_test

import (
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// pureImports are what the machine may use, with the reason for those that one
// might wonder about.
var pureImports = map[string]string{
	"bufio": "", "bytes": "", "cmp": "", "crypto/sha1": "names of scripts", "encoding/hex": "", "encoding/binary": "", "errors": "", "fmt": "", "hash/crc32": "", "hash/crc64": "", "math": "", "math/bits": "", "slices": "", "sort": "", "strconv": "", "strings": "", "unsafe": "viewString",
	"io":                       "WriteSnapshot and ReadSnapshot are handed a writer and a reader",
	"math/big":                 "the sums of INCRBYFLOAT, in the width of Redis' long double on every machine",
	"github.com/tidwall/btree": "the index of deadlines, the script cache",
}

// pureMath are the functions of package math whose results IEEE 754 or integers leave
// no choice about. Others (Sin, Log, Pow) differ in the last bit from machine to machine.
var pureMath = strings.Fields("Abs FMA Float64bits Float64frombits Inf IsInf IsNaN Round Sqrt Trunc")

// mapRanges are the loops over maps that are allowed.
var mapRanges = map[string]string{
	"snapshot.go m.sessions": "sorted by node before anybody sees it",
}

// TestPurity keeps what differs from node to node out of the machine: clocks,
// randomness, the system, goroutines, the order of maps, and products of floats that
// some processors round and others do not, before something is added to them.
func TestPurity(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var trees []*ast.File
	var names []string
	fset := token.NewFileSet()
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		tree, err := parser.ParseFile(fset, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		trees, names = append(trees, tree), append(names, name)
	}
	info := typesOf(fset, trees)
	used := make(map[string]bool)
	rounded := make(map[ast.Expr]bool) // arguments of float64(…)
	seen, products := 0, 0             // ranges over maps, products of floats: the test must be able to see one
	for i, tree := range trees {
		for _, imp := range tree.Imports {
			path, err := strconv.Unquote(imp.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			if _, ok := pureImports[path]; !ok {
				t.Errorf("%s imports %s", names[i], path)
			}
			used[path] = true
		}
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
					t.Errorf("%s calls %s", fset.Position(n.Pos()), f)
				}
			case *ast.BinaryExpr:
				if n.Op != token.MUL || !floating(info.Types[n]) {
					break
				}
				products++
				if !rounded[n] {
					t.Errorf("%s: a product of floats that is not rounded at once, by float64(…)", fset.Position(n.Pos()))
				}
			case *ast.AssignStmt:
				if n.Tok == token.MUL_ASSIGN && floating(info.Types[n.Lhs[0]]) {
					t.Errorf("%s: a product of floats that is not rounded at once, by float64(…)", fset.Position(n.Pos()))
				}
			case *ast.RangeStmt:
				what := source(n.X)
				typ := info.Types[n.X].Type
				if typ == nil {
					t.Errorf("%s: the type of %s is not known", fset.Position(n.Pos()), what)
					break
				}
				if _, ok := typ.Underlying().(*types.Map); !ok {
					break
				}
				seen++
				key := names[i] + " " + what
				if _, ok := mapRanges[key]; !ok {
					t.Errorf("%s ranges over a map (%s)", fset.Position(n.Pos()), what)
				}
				used[key] = true
			}
			return true
		})
	}
	for path := range pureImports {
		if !used[path] {
			t.Errorf("import %s is allowed and not used", path)
		}
	}
	for key := range mapRanges {
		if !used[key] {
			t.Errorf("range %s is allowed and not there", key)
		}
	}
	if seen == 0 {
		t.Error("no range over a map found, where there is one in snapshot.go")
	}
	if products == 0 {
		t.Error("no product of floats found, where there is one in zsetop.go")
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

// typesOf checks the types of the package as far as its own declarations go, and
// package math, whose floats are multiplied here: what else it imports stays
// unknown, and no map of theirs is in sight.
func typesOf(fset *token.FileSet, trees []*ast.File) types.Info {
	info := types.Info{Types: make(map[ast.Expr]types.TypeAndValue)}
	conf := types.Config{Importer: fewImports{importer.ForCompiler(fset, "source", nil)}, Error: func(error) {}}
	_, _ = conf.Check("fsm", fset, trees, &info) // the imports are missed, which is no news
	return info
}

type fewImports struct{ types.Importer }

func (i fewImports) Import(path string) (*types.Package, error) {
	if path == "math" {
		return i.Importer.Import(path)
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
