package check

import (
	"fmt"
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

var (
	eventKind = regexp.MustCompile(`^[a-z]+(\.[a-z]+(-[a-z]+)*){2}$`)
	eventRow  = regexp.MustCompile("^\\| `([^`]+)` \\|")
	eventWord = regexp.MustCompile(`(?m)^  "([^"]+)": \(`)
)

// publishers are the names of the functions whose first argument is the kind of an event, or the
// end of that kind.
var publishers = map[string]bool{"publish": true, "Publish": true, "event": true, "emit": true, "tellRefused": true}

// CheckEvents finds kinds of events that do not have the form service.object.verb, and kinds that
// docs/reference/events.md does not list. It checks the kinds that the code publishes by a string
// literal, and those for which the dashboard has a text.
func CheckEvents(root string, t *Tree) ([]Problem, error) {
	const document = "docs/reference/events.md"
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(document)))
	if err != nil {
		return nil, fmt.Errorf("check events: %w", err)
	}
	var problems []Problem
	documented := map[string]bool{}
	number := 0
	for line := range strings.Lines(string(text)) {
		number++
		m := eventRow.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		if !eventKind.MatchString(m[1]) {
			problems = append(problems, Problem{Path: document, Line: number, Text: fmt.Sprintf("the kind %s is not service.object.verb", m[1])})
		}
		documented[m[1]] = true
	}
	for _, f := range t.Files {
		if f.Test() || strings.HasPrefix(f.Path, "examples/") {
			continue
		}
		ast.Inspect(f.AST, func(n ast.Node) bool {
			if end, ok := published(n); ok && !known(documented, f.Dir(), end) {
				problems = append(problems, Problem{Path: f.Path, Line: t.Line(n.Pos()), Text: fmt.Sprintf("the event %q is not in %s", end, document)})
			}
			return true
		})
	}
	words, err := filepath.Glob(filepath.Join(root, "dashboard/src/events/*.ts"))
	if err != nil {
		return nil, fmt.Errorf("check events: %w", err)
	}
	for _, name := range words {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("check events: %w", err)
		}
		for _, m := range eventWord.FindAllStringSubmatch(string(text), -1) {
			if !documented[m[1]] {
				problems = append(problems, Problem{Path: "dashboard/src/events/" + filepath.Base(name), Text: fmt.Sprintf("words for the event %s, which is not in %s", m[1], document)})
			}
		}
	}
	return problems, nil
}

// published returns the kind, or the end of the kind, of the event that a call publishes. It
// reports false if the node is not such a call, or if the kind is not a string literal.
func published(n ast.Node) (end string, ok bool) {
	call, ok := n.(*ast.CallExpr)
	if !ok || len(call.Args) < 2 {
		return "", false
	}
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || !publishers[f.Sel.Name] {
		return "", false
	}
	kind, ok := call.Args[0].(*ast.BasicLit)
	if !ok || kind.Kind != token.STRING {
		return "", false
	}
	end, err := strconv.Unquote(kind.Value)
	return end, err == nil
}

// known reports whether the documentation lists a kind that ends with end. The kind must be of the
// service to which the folder belongs, or of any service if the folder is the service kit.
func known(documented map[string]bool, dir, end string) bool {
	service, _, _ := strings.Cut(strings.TrimPrefix(dir, "services/"), "/")
	if documented[end] {
		return true
	}
	for kind := range documented {
		if (service == "kit" || strings.HasPrefix(kind, service+".")) && strings.HasSuffix(kind, "."+end) {
			return true
		}
	}
	return false
}
