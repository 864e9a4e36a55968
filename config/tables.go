package config

import (
	"fmt"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v3"

	"github.com/sluice-net/sluice/internal/strictyaml"
	"github.com/sluice-net/sluice/network/rule"
)

// Tables holds the numbers of the pipeline's tables in a switch: as the switch reports (auto, the
// zero value), all stages in one table (1), or tables with given numbers (a mapping).
type Tables struct{ rule.Layout }

// tablesForm describes how Tables is written.
const tablesForm = "auto, 1, or numbers that rise from 0 like {classify: 0, service: 1, route: 2}"

// UnmarshalText parses any of the forms.
func (t *Tables) UnmarshalText(b []byte) (err error) {
	*t = Tables{}
	switch string(b) {
	case "auto":
		return nil
	case "1":
		t.Layout = rule.OneTable
		return nil
	}
	m, problems := strictyaml.Parse("", b)
	if len(problems) > 0 {
		return fmt.Errorf("tables %q: want %s", b, tablesForm)
	}
	stages := map[string]uint8{}
	for pair := range slices.Chunk(m.Content, 2) {
		number, err := strconv.ParseUint(pair[1].Value, 10, 8)
		if stage := pair[0].Value; err != nil || !slices.Contains([]string{"classify", "service", "route"}, stage) {
			return fmt.Errorf("tables %q: %s: want %s", b, stage, tablesForm)
		}
		stages[pair[0].Value] = uint8(number)
	}
	if len(stages) < 3 {
		return fmt.Errorf("tables %q: classify, service and route are needed", b)
	}
	t.Layout, err = rule.NewLayout(stages["classify"], stages["service"], stages["route"])
	return err
}

// MarshalText returns the form that UnmarshalText parses.
func (t Tables) MarshalText() ([]byte, error) {
	switch {
	case !t.Known():
		return []byte("auto"), nil
	case !t.Layout.Tables():
		return []byte("1"), nil
	}
	return fmt.Appendf(nil, "{classify: %d, service: %d, route: %d}", t.Number(rule.TableClassify), t.Number(rule.TableService), t.Number(rule.TableRoute)), nil
}

// inline returns a mapping as a scalar node with its text, so that UnmarshalText can parse it.
func inline(n *yaml.Node) *yaml.Node {
	b, err := yaml.Marshal(n)
	if err != nil {
		return n
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: string(b), Line: n.Line}
}
