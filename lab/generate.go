package lab

import (
	"fmt"

	"github.com/sluice-net/sluice/lab/delayline"
)

// Line returns n switches s1 to sn in a row, with a host h1 to hn at each. link gives the
// parameters of the links between switches.
func Line(name string, n int, link delayline.Params) Topology {
	t := Topology{Name: name}
	for i := 1; i <= n; i++ {
		t.addSwitchWithHost(i)
		if i > 1 {
			t.Links = append(t.Links, Both(switchName(i-1), switchName(i), link))
		}
	}
	return t
}

// Ring returns a Line whose ends are joined as well if it has at least three switches.
func Ring(name string, n int, link delayline.Params) Topology {
	t := Line(name, n, link)
	if n > 2 {
		t.Links = append(t.Links, Both(switchName(n), switchName(1), link))
	}
	return t
}

// Tree returns a tree of switches of the given depth, in which each inner switch has fanout
// children and each leaf has fanout hosts.
func Tree(name string, depth, fanout int, link delayline.Params) Topology {
	t := Topology{Name: name}
	level := []string{t.addSwitch(1)}
	for d := 1; d < depth; d++ {
		var next []string
		for _, parent := range level {
			for range fanout {
				child := t.addSwitch(len(t.Switches) + 1)
				t.Links = append(t.Links, Both(parent, child, link))
				next = append(next, child)
			}
		}
		level = next
	}
	for _, leaf := range level {
		for range fanout {
			t.addHost(leaf)
		}
	}
	return t
}

// FatTree returns the three-tier Clos network of k-port switches: (k/2)² core switches, and k pods
// of k/2 aggregation and k/2 edge switches with k/2 hosts each. k is even. link gives the
// parameters of every link, those of the hosts included.
func FatTree(name string, k int, link delayline.Params) Topology {
	t := Topology{Name: name}
	half := k / 2
	named := func(format string, args ...any) string {
		s := fmt.Sprintf(format, args...)
		t.Switches = append(t.Switches, Switch{Name: s})
		return s
	}
	core := make([]string, half*half)
	for i := range core {
		core[i] = named("core%d", i+1)
	}
	for pod := 1; pod <= k; pod++ {
		aggregation := make([]string, half)
		for a := range aggregation {
			aggregation[a] = named("agg%d-%d", pod, a+1)
			for c := range half {
				t.Links = append(t.Links, Both(core[a*half+c], aggregation[a], link))
			}
		}
		for e := range half {
			edge := named("edge%d-%d", pod, e+1)
			for _, a := range aggregation {
				t.Links = append(t.Links, Both(a, edge, link))
			}
			for range half {
				t.addHost(edge)
				l := &t.Links[len(t.Links)-1]
				l.AtoB, l.BtoA = link, link
			}
		}
	}
	return t
}

func switchName(i int) string { return fmt.Sprintf("s%d", i) }

func (t *Topology) addSwitch(i int) string {
	t.Switches = append(t.Switches, Switch{Name: switchName(i)})
	return switchName(i)
}

// addHost adds the next host and its plain link to a switch.
func (t *Topology) addHost(to string) {
	name := fmt.Sprintf("h%d", len(t.Hosts)+1)
	t.Hosts = append(t.Hosts, Host{Name: name})
	t.Links = append(t.Links, Both(name, to, delayline.Params{}))
}

func (t *Topology) addSwitchWithHost(i int) { t.addHost(t.addSwitch(i)) }
