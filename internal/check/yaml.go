package check

import "go/ast"

// CheckYAML finds decoders of YAML other than package strictyaml, because these neither bound the
// size of a file nor refuse repeated keys.
func CheckYAML(t *Tree) []Problem {
	var problems []Problem
	for _, f := range t.Files {
		if f.Test() || f.Dir() == "internal/strictyaml" {
			continue
		}
		ast.Inspect(f.AST, func(n ast.Node) bool {
			if e, ok := n.(ast.Expr); ok && (calls(e, "yaml", "Unmarshal") || calls(e, "yaml", "NewDecoder")) {
				problems = append(problems, Problem{Path: f.Path, Line: t.Line(n.Pos()), Text: "reads YAML by itself; use internal/strictyaml"})
			}
			return true
		})
	}
	return problems
}
