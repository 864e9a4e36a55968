package experiment

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
)

// ceilingWork is how long each flow of the ceiling would take at the rate of a link.
const ceilingWork = 15 * time.Second

// ceiling returns the mean share of a link that plain TCP reaches with perfect routing. All hosts
// send at the same time, each to one of the next pod, on paths of which no two share a link.
// ceiling itself installs the rules of these paths. The result shows what the machine can carry,
// less TCP's headers and start.
func (r *fatTreeRig) ceiling(ctx context.Context) (float64, error) {
	r.env.Step("what the machine carries: all hosts at once, on paths that share no link")
	half := r.scale.k / 2
	hosts := len(r.lab.Topology().Hosts)
	flows := make([]matrixFlow, hosts)
	rules := map[string][]string{}
	for i := range flows {
		to := (i + half*half) % hosts // the host at the corresponding place of the next pod
		flows[i] = matrixFlow{from: i, to: to, work: ceilingWork, large: true}
		if err := r.addPath(rules, i, to); err != nil {
			return 0, err
		}
	}
	if err := r.write(ctx, rules); err != nil {
		return 0, err
	}
	if err := r.introduceHosts(ctx, flows); err != nil {
		return 0, err
	}
	out, err := r.carry(ctx, flows, false)
	if err != nil {
		return 0, err
	}
	for s := range rules {
		if _, err := r.lab.Switch(s).Ofctl(ctx, "del-flows"); err != nil {
			return 0, err
		}
	}
	shares := fatTreeRun{flows: out}.shares()
	r.env.Logf("%.1f %% of a link", mean(shares)*100)
	return mean(shares), tasks.Sleep(ctx, time.Second)
}

// addPath adds the rules of a path between two hosts at the same place in their pods, in both
// directions. The n-th host of the m-th rack uses the n-th aggregation switch and its m-th core
// switch, so that each link carries one host's packets.
func (r *fatTreeRig) addPath(rules map[string][]string, from, to int) error {
	half := r.scale.k / 2
	place := func(host int) (pod, rack, n int) {
		return host / (half * half), host / half % half, host % half
	}
	pod, rack, n := place(from)
	other, _, _ := place(to)
	path := []string{
		r.host(from).Name(), fmt.Sprintf("edge%d-%d", pod+1, rack+1), fmt.Sprintf("agg%d-%d", pod+1, n+1), fmt.Sprintf("core%d", n*half+rack+1),
		fmt.Sprintf("agg%d-%d", other+1, n+1), fmt.Sprintf("edge%d-%d", other+1, rack+1), r.host(to).Name(),
	}
	for at := 1; at < len(path)-1; at++ {
		for _, way := range []struct {
			next string
			a, b int
		}{{path[at+1], from, to}, {path[at-1], to, from}} {
			link, err := linkBetween(r.lab, path[at], way.next)
			if err != nil {
				return err
			}
			port, err := r.lab.Switch(path[at]).Port(link)
			if err != nil {
				return err
			}
			src, dst := r.host(way.a).Addr(), r.host(way.b).Addr()
			rules[path[at]] = append(rules[path[at]],
				fmt.Sprintf("priority=9,ip,nw_src=%v,nw_dst=%v,actions=output:%d", src, dst, port),
				fmt.Sprintf("priority=9,arp,arp_spa=%v,arp_tpa=%v,actions=output:%d", src, dst, port))
		}
	}
	return nil
}

// write installs rules in switches.
func (r *fatTreeRig) write(ctx context.Context, rules map[string][]string) error {
	file := filepath.Join(r.env.Dir, "ceiling.flows")
	for _, s := range r.lab.Topology().Switches {
		if err := os.WriteFile(file, []byte(strings.Join(rules[s.Name], "\n")), 0o600); err != nil {
			return err
		}
		if _, err := r.lab.Switch(s.Name).Ofctl(ctx, "add-flows", file); err != nil {
			return err
		}
	}
	return os.Remove(file)
}
