package datapath

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/openflow"
)

func TestConfigCheck(t *testing.T) {
	vni, wifi, lte := openflow.MAC{2, 0, 0, 0, 0, 1}, openflow.MAC{2, 0, 0, 0, 0, 2}, openflow.MAC{2, 0, 0, 0, 0, 3}
	right := Config{VNI: "vni0", VNIMAC: vni, Interfaces: []Interface{{"wlan0", wifi}, {"wwan0", lte}}}
	cases := []struct {
		name   string
		change func(*Config)
		want   string
	}{
		{"right", func(*Config) {}, ""},
		{"no interfaces yet", func(c *Config) { c.Interfaces = nil }, ""},
		{"no name", func(c *Config) { c.VNI = "" }, "no name"},
		{"long name", func(c *Config) { c.VNI = "a-name-of-sixteen" }, "longer than"},
		{"slash", func(c *Config) { c.VNI = "a/b" }, "no name for an interface"},
		{"group address", func(c *Config) { c.VNIMAC = openflow.MAC{1} }, "no address of a station"},
		{"no address", func(c *Config) { c.VNIMAC = openflow.MAC{} }, "no address of a station"},
		{"small MTU", func(c *Config) { c.MTU = 68 }, "MTU 68"},
		{"large MTU", func(c *Config) { c.MTU = 65536 }, "MTU 65536"},
		{"twice", func(c *Config) { c.Interfaces[1].Name = "wlan0" }, "twice"},
		{"itself", func(c *Config) { c.Interfaces[1].Name = "vni0" }, "itself"},
		{"its address", func(c *Config) { c.Interfaces[1].MAC = vni }, "has the virtual interface's address"},
		{"too many", func(c *Config) { c.Interfaces = make([]Interface, MaxInterfaces+1) }, "at most 16"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			config := right
			config.Interfaces = slices.Clone(right.Interfaces)
			c.change(&config)
			err := config.Check()
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

func TestChoice(t *testing.T) {
	attached := func(name string) bool { return name == "a" || name == "b" }
	c, err := NewChoice("a", []string{"a", "b", "a"}, attached)
	if err != nil || !slices.Equal(c.Receive, []string{"a", "b"}) {
		t.Fatalf("%+v, %v", c, err)
	}
	if w := c.Without("a"); w.Send != "" || !slices.Equal(w.Receive, []string{"b"}) {
		t.Errorf("without a: %+v", w)
	}
	if w := c.Without("b"); w.Send != "a" || !slices.Equal(w.Receive, []string{"a"}) {
		t.Errorf("without b: %+v", w)
	}
	if len(c.Receive) != 2 {
		t.Error("Without changed the choice it was called on")
	}
	if _, err := NewChoice("c", nil, attached); !errors.Is(err, ErrUnknownInterface) {
		t.Errorf("sending by a stranger: %v", err)
	}
	if _, err := NewChoice("", []string{"c"}, attached); !errors.Is(err, ErrUnknownInterface) {
		t.Errorf("receiving from a stranger: %v", err)
	}
}
