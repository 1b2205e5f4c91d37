package tidy

import (
	"go/ast"
	"strings"
	"testing"
)

// These limits keep a file, a function and a struct readable as a whole. They
// apply to tests too.
const (
	maxFileLines     = 800
	maxFunctionLines = 100
	maxStructFields  = 25
)

// TestSizes_AreBounded checks the length of files and functions, and the number
// of fields of structs.
func TestSizes_AreBounded(t *testing.T) {
	for _, s := range sources(t) {
		if n := s.fset.File(s.ast.FileStart).LineCount(); n > maxFileLines {
			t.Errorf("%s: %d lines, at most %d are allowed: divide the file", s.path, n, maxFileLines)
		}
		ast.Inspect(s.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				lines := s.fset.Position(n.End()).Line - s.fset.Position(n.Pos()).Line + 1
				if lines > maxFunctionLines {
					t.Errorf("%s: function %s of %d lines, at most %d are allowed",
						s.at(n.Pos()), n.Name.Name, lines, maxFunctionLines)
				}
			case *ast.StructType:
				if fields := n.Fields.NumFields(); fields > maxStructFields {
					t.Errorf("%s: struct of %d fields, at most %d are allowed",
						s.at(n.Pos()), fields, maxStructFields)
				}
			}
			return true
		})
	}
}

// maxFolderFiles is the maximum number of product files in a folder. In a
// larger folder, it is hard to find a file by its name.
const maxFolderFiles = 30

// TestFolders_AreSmall checks the number of product files of each folder.
func TestFolders_AreSmall(t *testing.T) {
	files := make(map[string]int)
	for _, s := range sources(t) {
		if !s.test() && !strings.HasPrefix(s.path, "test/") {
			files[s.dir()]++
		}
	}
	for dir, n := range files {
		if n > maxFolderFiles {
			t.Errorf("%s has %d files, at most %d are allowed: divide the folder", dir, n, maxFolderFiles)
		}
	}
}
