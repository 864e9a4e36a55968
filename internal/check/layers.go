package check

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Layer lists what the packages of one folder may import from this module.
type Layer struct {
	// Dir is a folder. The layer covers it and all folders below it that have no entry of their
	// own.
	Dir string
	// May lists folders whose packages, and the packages below them, may be imported. Packages of
	// one layer may always import each other.
	May []string
	// Only lists folders that may be imported without the packages below them.
	Only []string
	// Tests lists further folders that test files may import.
	Tests []string
}

// Layers returns the layers of the modules below root from the bottom up, which ARCHITECTURE.md
// draws. CheckLayers reports packages that no layer covers. New folders are added here, and those
// of a service to its file layers.txt.
func Layers(root string) ([]Layer, error) {
	layers := ownLayers()
	files, err := filepath.Glob(filepath.Join(root, "services/*/layers.txt"))
	if err != nil {
		return nil, fmt.Errorf("check layers: %w", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("check layers: %w", err)
		}
		more, err := serviceLayers(root, filepath.Base(filepath.Dir(file)), string(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		layers = append(layers, more...)
	}
	return layers, nil
}

// serviceLayers returns the layers of a service: the package with its name, its cli, and its other
// parts. Each part is one line of text: "PART: MAY... | only: ONLY... | tests: TESTS...". A name in
// such a line is a folder of the service, or otherwise a folder of the module. Services never
// import each other.
func serviceLayers(root, service, text string) ([]Layer, error) {
	dir := "services/" + service
	foundations := []string{"config", "event", "kit", "network", "openflow", "ovsdb", "pki", "store"}
	layers := []Layer{
		{Dir: dir, May: foundations, Only: []string{"api"}},
		{Dir: dir + "/cli", May: append([]string{"api", "cli/command", dir}, foundations...)},
	}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		part, rest, ok := strings.Cut(line, ":")
		if !ok {
			return nil, fmt.Errorf("%q: write PART: and what it may import", line)
		}
		layer := Layer{Dir: dir + "/" + part}
		for i, list := range strings.Split(rest, "|") {
			to := &layer.May
			if i > 0 {
				kind, names, _ := strings.Cut(list, ":")
				switch list = names; strings.TrimSpace(kind) {
				case "only":
					to = &layer.Only
				case "tests":
					to = &layer.Tests
				default:
					return nil, fmt.Errorf("%q: write only: or tests: behind a |", line)
				}
			}
			for name := range strings.FieldsSeq(list) {
				if info, err := os.Stat(filepath.Join(root, dir, name)); err == nil && info.IsDir() {
					name = dir + "/" + name
				}
				*to = append(*to, name)
			}
		}
		layers = append(layers, layer)
	}
	return layers, nil
}

// ownLayers returns the layers outside of the folder services.
func ownLayers() []Layer {
	return []Layer{
		{Dir: "internal"},
		{Dir: "openflow"},
		{Dir: "event", May: []string{"store"}},
		{Dir: "store"},
		{Dir: "pki"},
		{Dir: "ovsdb"},
		{Dir: "network/graph"},
		{Dir: "network/packet", May: []string{"openflow"}},
		{Dir: "network", May: []string{"openflow", "event"}},
		{Dir: "kit/control", Only: []string{"api/client"}},
		{Dir: "kit", May: []string{"network", "openflow", "pki", "store", "event", "config", "ovsdb"}, Only: []string{"api"}},
		// The base of the services' commands.
		{Dir: "kit/commands", May: []string{"api", "cli/command", "config", "kit", "openflow", "pki"}},
		{Dir: "api", May: []string{"event", "store", "pki"}},
		{Dir: "api/conformance", Tests: []string{"api", "network", "openflow", "pki"}},
		{Dir: "dashboard"},
		{Dir: "config", May: []string{"openflow", "network", "pki", "ovsdb"}},
		// The list of the services. Each service has its own layers in services/NAME/layers.txt.
		{Dir: "services", May: []string{"config", "kit", "services"}},
		{
			Dir:   "controller",
			May:   []string{"openflow", "network", "event", "store", "pki", "config", "api", "dashboard", "kit", "ovsdb"},
			Tests: []string{"services"},
		},
		{
			Dir: "cli",
			May: []string{"openflow", "network", "event", "store", "pki", "config", "api", "kit", "services", "controller"},
		},
		{Dir: "cmd/sluice", May: []string{"cli", "services"}},
		{Dir: "lab"},
		{Dir: "lab/loadgen", May: []string{"network", "openflow"}},
		{Dir: "lab/hostile", May: []string{"network", "openflow"}},
		{Dir: "lab/reflector", May: []string{"network", "openflow"}},
		{Dir: "lab/testbed", May: []string{"lab", "api", "services", "network", "openflow", "pki", "kit"}},
		{Dir: "lab/experiment", May: []string{"lab", "api", "services", "network", "openflow", "pki", "kit"}},
		{Dir: "lab/soak", May: []string{"lab", "network", "services"}},
		{Dir: "lab/demo", May: []string{"lab", "services"}},
		{Dir: "lab/cli", May: []string{"cli/command", "cli/doctor", "lab", "network", "openflow"}},
		{Dir: "lab/cmd/sluice-lab", May: []string{"lab/cli"}},
		{Dir: "test", Tests: []string{"lab", "config", "controller", "event", "ovsdb", "store", "cli", "api", "services", "network", "openflow", "pki", "kit"}},
		{
			Dir:   "examples",
			May:   []string{"api", "cli", "event", "kit", "network", "openflow", "pki", "services"},
			Tests: []string{"lab", "store"},
		},
	}
}

// CheckLayers finds imports that the layers do not allow.
func CheckLayers(t *Tree, layers []Layer) []Problem {
	var problems []Problem
	for _, f := range t.Files {
		layer, ok := layerOf(layers, f.Dir())
		if !ok {
			problems = append(problems, Problem{Path: f.Path, Text: "folder is not on the map of layers in internal/check/layers.go"})
			continue
		}
		for _, spec := range f.AST.Imports {
			path, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				continue // cannot happen, because the parser has accepted the import
			}
			target, ours := strings.CutPrefix(path, t.Module+"/")
			if !ours || layer.allows(layers, target, f.Test()) {
				continue
			}
			problems = append(problems, Problem{
				Path: f.Path,
				Line: t.Line(spec.Pos()),
				Text: fmt.Sprintf("%s must not import %s", f.Dir(), target),
			})
		}
	}
	return problems
}

// layerOf returns the layer with the longest folder that contains dir.
func layerOf(layers []Layer, dir string) (Layer, bool) {
	best, found := Layer{}, false
	for _, l := range layers {
		if within(dir, l.Dir) && (!found || len(l.Dir) > len(best.Dir)) {
			best, found = l, true
		}
	}
	return best, found
}

func (l Layer) allows(layers []Layer, target string, test bool) bool {
	if within(target, "internal") {
		return true
	}
	own, ok := layerOf(layers, target)
	if ok && own.Dir == l.Dir {
		return true
	}
	allowed := l.May
	if test {
		allowed = slices.Concat(l.May, l.Tests)
	}
	if slices.ContainsFunc(allowed, func(dir string) bool { return within(target, dir) }) {
		return true
	}
	// A folder may import the packages below it: network imports network/graph.
	return within(target, l.Dir) || slices.Contains(l.Only, target)
}

// within reports whether dir is root or lies below it.
func within(dir, root string) bool {
	return dir == root || strings.HasPrefix(dir, root+"/")
}
