package check

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Layer says what the packages of one folder may import from this module.
type Layer struct {
	// Dir is a folder; the layer covers it and everything below it that has no
	// longer entry of its own.
	Dir string
	// May lists folders; each stands for itself and everything below it. What a
	// layer holds may always import the rest of the same Dir.
	May []string
	// Only lists the folder itself, without what lies below it.
	Only []string
	// Tests lists what test files may import beyond that.
	Tests []string
}

// Layers is the map of the module from the bottom up. ARCHITECTURE.md draws it.
// A package that no entry covers is a problem: new folders get their place here.
func Layers() []Layer {
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

		{Dir: "services/sos/wire"},
		{Dir: "services/sos/pathrate"},
		{Dir: "services/sos/agentapi", May: []string{"kit/control"}},
		{Dir: "services/sos/agent", May: []string{"services/sos/wire", "services/sos/pathrate", "services/sos/agentapi", "kit/control", "pki"}},
		{
			Dir:   "services/sos",
			May:   []string{"services/sos/agentapi", "network", "openflow", "event", "kit", "store"},
			Only:  []string{"api"},
			Tests: []string{"pki", "services/sos/agent"},
		},

		{Dir: "services/handover/registry", May: []string{"openflow", "network", "kit", "store"}},
		{Dir: "services/handover/dhcp", May: []string{"openflow", "network", "services/handover/registry"}, Tests: []string{"store"}},
		{Dir: "services/handover/route", May: []string{"openflow", "network"}},
		{Dir: "services/handover/predict", May: []string{"network"}, Tests: []string{"openflow"}},
		{Dir: "services/handover/domain", May: []string{"services/handover/registry", "network", "openflow", "pki", "kit", "store"}, Only: []string{"api"}},
		{
			Dir: "services/handover",
			May: []string{
				"services/handover/registry", "services/handover/dhcp", "services/handover/route", "services/handover/predict", "services/handover/domain",
				"network", "openflow", "event", "kit", "store", "pki",
			},
			Only: []string{"api"},
		},
		{Dir: "services/handover/mobile", May: []string{"services/handover/dhcp", "network", "openflow", "pki"}, Only: []string{"api/client"}, Tests: []string{"store", "services/handover/registry"}},

		{Dir: "services/qos/match", May: []string{"openflow", "network", "kit"}},
		{Dir: "services/qos/mark"},
		{Dir: "services/qos/reserve", May: []string{"network", "openflow"}},
		{Dir: "services/qos/flowpath", May: []string{"services/qos/match", "network", "openflow"}},
		{Dir: "services/qos/guard", May: []string{"services/qos/reserve", "network", "openflow", "kit"}},
		{Dir: "services/qos/subflows", May: []string{"services/qos/guard", "services/qos/match", "services/qos/reserve", "services/qos/flowpath", "network", "openflow", "kit", "store"}, Only: []string{"api"}},
		{Dir: "services/qos/critical", May: []string{"services/qos/guard", "services/qos/match", "services/qos/reserve", "services/qos/flowpath", "network", "openflow", "kit", "store"}, Only: []string{"api"}},
		{
			Dir:  "services/qos/classes",
			May:  []string{"services/qos/match", "services/qos/reserve", "services/qos/mark", "ovsdb", "network", "openflow", "event", "kit", "store"},
			Only: []string{"api"},
		},
		{Dir: "services/qos/hostagent"},
		{Dir: "services/qos/classifier", May: []string{"services/qos/mark", "ovsdb"}},
		{
			Dir:  "services/qos",
			May:  []string{"services/qos/match", "services/qos/reserve", "services/qos/flowpath", "services/qos/guard", "services/qos/critical", "services/qos/classes", "services/qos/subflows", "network", "openflow", "event", "kit", "store"},
			Only: []string{"api"},
		},

		{Dir: "services/cinema/gatewayapi", May: []string{"kit/control"}},
		{Dir: "services/cinema/media"},
		{
			Dir: "services/cinema/egress", May: []string{"services/cinema/gatewayapi", "services/cinema/media", "kit/control", "pki"},
			Only: []string{"api/client"},
		},
		{Dir: "services/cinema/ingress", May: []string{"services/cinema/gatewayapi", "services/cinema/media", "kit/control", "pki"}},
		{Dir: "services/cinema/tree", May: []string{"network", "openflow", "kit"}},
		{
			Dir:  "services/cinema",
			May:  []string{"services/cinema/gatewayapi", "services/cinema/tree", "network", "openflow", "event", "kit", "store", "pki"},
			Only: []string{"api"},
		},

		{Dir: "services/mobilityfirst/frame"},
		{Dir: "services/mobilityfirst/stream", May: []string{"services/mobilityfirst/frame"}},
		{Dir: "services/mobilityfirst/rawlink", May: []string{"services/mobilityfirst/frame", "openflow"}},
		{Dir: "services/mobilityfirst/hostapi", May: []string{"services/mobilityfirst/frame"}},
		{
			Dir: "services/mobilityfirst/host",
			May: []string{"services/mobilityfirst/frame", "services/mobilityfirst/stream", "services/mobilityfirst/rawlink", "services/mobilityfirst/record", "services/mobilityfirst/hostapi", "services/mobilityfirst/custody", "services/mobilityfirst/udplink", "openflow"},
		},
		{Dir: "services/mobilityfirst/udplink", May: []string{"services/mobilityfirst/rawlink", "openflow"}},
		{Dir: "services/mobilityfirst/custody", May: []string{"services/mobilityfirst/frame", "services/mobilityfirst/record"}},
		{
			Dir: "services/mobilityfirst/content", May: []string{"services/mobilityfirst/frame", "services/mobilityfirst/record", "services/mobilityfirst/hostapi"},
			Tests: []string{"services/mobilityfirst/host", "services/mobilityfirst/hosttest"},
		},
		{
			Dir:   "services/mobilityfirst/compute",
			May:   []string{"services/mobilityfirst/frame", "services/mobilityfirst/custody", "services/mobilityfirst/record", "services/mobilityfirst/hostapi"},
			Tests: []string{"services/mobilityfirst/host", "services/mobilityfirst/hosttest"},
		},
		{
			Dir:   "services/mobilityfirst/storage",
			May:   []string{"services/mobilityfirst/frame", "services/mobilityfirst/custody", "services/mobilityfirst/hostapi", "services/mobilityfirst/nodeapi"},
			Tests: []string{"services/mobilityfirst/host", "services/mobilityfirst/hosttest", "services/mobilityfirst/record"},
		},
		{Dir: "services/mobilityfirst/nodeapi", May: []string{"services/mobilityfirst/frame", "services/mobilityfirst/record", "openflow", "kit/control"}},
		{
			Dir:  "services/mobilityfirst",
			May:  []string{"services/mobilityfirst/frame", "services/mobilityfirst/record", "services/mobilityfirst/nodeapi", "network", "openflow", "event", "kit", "store"},
			Only: []string{"api"},
		},
		{
			Dir:   "services/mobilityfirst/access",
			May:   []string{"services/mobilityfirst/frame", "services/mobilityfirst/record", "services/mobilityfirst/rawlink", "services/mobilityfirst/host", "services/mobilityfirst/hostapi", "openflow"},
			Tests: []string{"services/mobilityfirst/hosttest", "services/mobilityfirst/mf1test"},
		},
		{Dir: "services/mobilityfirst/mf1test", May: []string{"services/mobilityfirst/frame", "services/mobilityfirst/host", "openflow"}},
		{Dir: "services/mobilityfirst/hosttest", May: []string{"services/mobilityfirst/host", "services/mobilityfirst/hostapi"}},
		{Dir: "services/mobilityfirst/proxy", May: []string{"services/mobilityfirst/frame", "services/mobilityfirst/hostapi"}, Tests: []string{"services/mobilityfirst/host", "services/mobilityfirst/hosttest"}},
		{Dir: "services/mobilityfirst/gnrswire", May: []string{"services/mobilityfirst/frame"}},
		{Dir: "services/mobilityfirst/record", May: []string{"services/mobilityfirst/frame", "services/mobilityfirst/gnrswire"}},
		{Dir: "services/mobilityfirst/namestore", May: []string{"services/mobilityfirst/frame", "services/mobilityfirst/record"}, Tests: []string{"services/mobilityfirst/gnrswire"}},
		{
			Dir: "services/mobilityfirst/redisnames", May: []string{"services/mobilityfirst/frame", "services/mobilityfirst/record", "services/mobilityfirst/namestore"},
			Tests: []string{"services/mobilityfirst/gnrswire", "services/mobilityfirst/gnrs", "pki"},
		},
		{
			Dir: "services/mobilityfirst/replicas", May: []string{"services/mobilityfirst/frame", "services/mobilityfirst/gnrswire", "services/mobilityfirst/record", "services/mobilityfirst/gnrs"},
			Tests: []string{"services/mobilityfirst/namestore"},
		},
		{
			Dir: "services/mobilityfirst/nameservice", May: []string{"services/mobilityfirst/gnrs", "services/mobilityfirst/namestore", "services/mobilityfirst/redisnames", "services/mobilityfirst/replicas", "kit", "pki"},
			Tests: []string{"services/mobilityfirst/frame", "services/mobilityfirst/record"}, Only: []string{"api"},
		},
		{Dir: "services/mobilityfirst/gnrs", May: []string{"services/mobilityfirst/frame", "services/mobilityfirst/gnrswire", "services/mobilityfirst/record"}, Tests: []string{"services/mobilityfirst/namestore"}},

		{Dir: "kit/control", Only: []string{"api/client"}},
		{Dir: "kit", May: []string{"network", "openflow", "pki", "store"}, Only: []string{"api"}, Tests: []string{"event"}},
		{Dir: "api", May: []string{"event", "store", "pki"}},
		{Dir: "api/conformance", Tests: []string{"api", "network", "openflow", "pki"}},
		{Dir: "dashboard"},
		{Dir: "config", May: []string{"openflow", "network", "pki", "kit", "services", "ovsdb"}},
		{
			Dir: "controller",
			May: []string{"openflow", "network", "event", "store", "pki", "config", "api", "dashboard", "kit", "services", "ovsdb"},
		},

		{
			Dir: "cli",
			May: []string{"openflow", "network", "event", "store", "pki", "config", "api", "kit", "services", "controller"},
		},
		{Dir: "cmd/sluice", May: []string{"cli"}},
		// The module of the laboratory. The networks that it makes know nothing of the product.
		{Dir: "lab"},
		{Dir: "lab/loadgen", May: []string{"network", "openflow"}},
		{Dir: "lab/hostile", May: []string{"network", "openflow"}},
		{Dir: "lab/testbed", May: []string{"lab", "api", "services", "network", "openflow", "pki", "kit"}},
		{Dir: "lab/experiment", May: []string{"lab", "api", "services", "network", "openflow", "pki", "kit"}},
		{Dir: "lab/soak", May: []string{"lab", "network", "services"}},
		{Dir: "lab/demo", May: []string{"lab", "services"}},
		{Dir: "lab/cli", May: []string{"cli/command", "cli/doctor", "lab", "network", "openflow"}},
		{Dir: "lab/cmd/sluice-lab", May: []string{"lab/cli"}},

		// The module of the live suites, which may use everything.
		{Dir: "test", Tests: []string{"lab", "config", "controller", "event", "ovsdb", "store", "cli", "api", "services", "network", "openflow", "pki", "kit"}},

		{
			Dir:   "examples",
			May:   []string{"api", "cli", "controller", "event", "network", "openflow", "kit"},
			Tests: []string{"lab", "pki", "store"},
		},
	}
}

// CheckLayers finds imports that the map does not allow.
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
				continue // the parser has accepted it; cannot happen
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

// layerOf picks the entry with the longest folder that covers dir.
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
	// A folder may use the parts it is made of: network uses network/graph.
	return within(target, l.Dir) || slices.Contains(l.Only, target)
}

// within reports whether dir is root or lies below it.
func within(dir, root string) bool {
	return dir == root || strings.HasPrefix(dir, root+"/")
}
