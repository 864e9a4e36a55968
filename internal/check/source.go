package check

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/token"
	"regexp"
	"strings"
)

// MaxLines is the longest a Go file may be, MaxTestLines one of tests.
const (
	MaxLines     = 400
	MaxTestLines = 600
)

// CheckLength finds files that are too long to be about one thing.
func CheckLength(t *Tree) []Problem {
	var problems []Problem
	for _, f := range t.Files {
		most := MaxLines
		if f.Test() {
			most = MaxTestLines
		}
		if f.Lines > most && !generated(f.AST) {
			problems = append(problems, Problem{Path: f.Path, Text: fmt.Sprintf("%d lines; split it below %d", f.Lines, most)})
		}
	}
	return problems
}

func generated(f *ast.File) bool { return ast.IsGenerated(f) }

var (
	leftUndone  = regexp.MustCompile(`\b(` + "TO" + `DO|` + "FIX" + `ME|` + "XX" + `X|` + "HA" + `CK)\b`)
	machinePath = regexp.MustCompile(`(^|[^A-Za-z0-9_.])/(home/[a-z]|root/|work/)`)
)

// CheckMarks finds notes of unfinished work, and paths of one person's machine.
func CheckMarks(t *Tree) []Problem {
	var problems []Problem
	for _, f := range t.Files {
		number := 0
		for line := range bytes.Lines(f.Text) {
			number++
			at := func(text string) {
				problems = append(problems, Problem{Path: f.Path, Line: number, Text: text})
			}
			if leftUndone.Match(line) {
				at("note of unfinished work; do it, or open an issue")
			}
			if machinePath.Match(line) {
				at("path of one machine")
			}
		}
	}
	return problems
}

// CheckPackageDocs finds packages without a doc.go that says what they are for.
// In a package of one file the comment may stand in that file.
func CheckPackageDocs(t *Tree) []Problem {
	code := map[string]int{}
	documented := map[string]bool{}
	for _, f := range t.Files {
		if !f.Test() {
			code[f.Dir()]++
		}
	}
	for _, f := range t.Files {
		own := strings.HasSuffix("/"+f.Path, "/doc.go") || code[f.Dir()] == 1
		if own && !f.Test() && f.AST.Doc != nil {
			documented[f.Dir()] = true
		}
	}
	var problems []Problem
	for _, dir := range t.Packages() {
		if !documented[dir] {
			problems = append(problems, Problem{Path: dir, Text: "no doc.go with a package comment"})
		}
	}
	return problems
}

// CheckExported finds exported identifiers without a comment. In a group of
// constants or variables the comment of the group is enough.
func CheckExported(t *Tree) []Problem {
	var problems []Problem
	for _, f := range t.Files {
		if f.Test() || f.AST.Name.Name == "main" || generated(f.AST) {
			continue
		}
		report := func(pos token.Pos, kind, name string) {
			problems = append(problems, Problem{
				Path: f.Path, Line: t.Line(pos),
				Text: fmt.Sprintf("exported %s %s has no comment", kind, name),
			})
		}
		for _, decl := range f.AST.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				if d.Doc == nil && d.Name.IsExported() && exportedReceiver(d) && !obvious(d) {
					report(d.Pos(), "function", d.Name.Name)
				}
			case *ast.GenDecl:
				undocumentedSpecs(d, report)
			}
		}
	}
	return problems
}

// obvious names methods whose meaning an interface of the standard library
// fixes, so that a comment could only repeat it.
func obvious(d *ast.FuncDecl) bool {
	if d.Recv == nil {
		return false
	}
	switch d.Name.Name {
	case "String", "Error", "Unwrap", "Len", "Less", "Swap", "MarshalText", "UnmarshalText",
		"MarshalJSON", "UnmarshalJSON", "MarshalYAML", "UnmarshalYAML", "LogValue", "Close",
		"Read", "Write", "Describe", "Collect", "Is", "As":
		return true
	}
	return false
}

func exportedReceiver(d *ast.FuncDecl) bool {
	if d.Recv == nil {
		return true
	}
	typ := d.Recv.List[0].Type
	for {
		switch x := typ.(type) {
		case *ast.StarExpr:
			typ = x.X
		case *ast.IndexExpr:
			typ = x.X
		case *ast.IndexListExpr:
			typ = x.X
		case *ast.Ident:
			return x.IsExported()
		default:
			return true
		}
	}
}

func undocumentedSpecs(d *ast.GenDecl, report func(token.Pos, string, string)) {
	for _, spec := range d.Specs {
		switch s := spec.(type) {
		case *ast.TypeSpec:
			if s.Name.IsExported() && s.Doc == nil && d.Doc == nil && s.Comment == nil {
				report(s.Pos(), "type", s.Name.Name)
			}
		case *ast.ValueSpec:
			if s.Doc != nil || d.Doc != nil || s.Comment != nil {
				continue
			}
			for _, name := range s.Names {
				if name.IsExported() {
					report(name.Pos(), d.Tok.String(), name.Name)
				}
			}
		}
	}
}
