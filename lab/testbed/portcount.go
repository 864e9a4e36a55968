package testbed

import (
	"context"
	"fmt"
	"regexp"
	"strconv"

	"github.com/sluice-net/sluice/lab"
)

// LinkBytes returns how many bytes switches have sent to each other so far. The keys are the name
// of the sending switch and that of the link, with a blank between.
func LinkBytes(ctx context.Context, l *lab.Lab) (map[string]uint64, error) {
	out, isSwitch := map[string]uint64{}, map[string]bool{}
	sent := map[string]map[int]uint64{}
	for _, s := range l.Topology().Switches {
		isSwitch[s.Name] = true
		text, err := l.Switch(s.Name).Ofctl(ctx, "dump-ports")
		if err != nil {
			return nil, err
		}
		sent[s.Name] = portBytes(text)
	}
	for _, k := range l.Topology().Links {
		for _, end := range []string{k.A.Node, k.B.Node} {
			if !isSwitch[k.A.Node] || !isSwitch[k.B.Node] {
				continue
			}
			port, err := l.Switch(end).Port(k.Name)
			if err != nil {
				return nil, err
			}
			n, ok := sent[end][port]
			if !ok {
				return nil, fmt.Errorf("switch %s does not count port %d", end, port)
			}
			out[end+" "+k.Name] = n
		}
	}
	return out, nil
}

// portLine matches what ovs-ofctl prints of a port's counters.
var portLine = regexp.MustCompile(`port +"?([0-9]+)"?: rx [^\n]*\n +tx pkts=[0-9]+, bytes=([0-9]+)`)

// portBytes returns the bytes that each port has sent.
func portBytes(text string) map[int]uint64 {
	out := map[int]uint64{}
	for _, found := range portLine.FindAllStringSubmatch(text, -1) {
		port, _ := strconv.Atoi(found[1])
		out[port], _ = strconv.ParseUint(found[2], 10, 64) // It consists of digits; an overflow counts as the largest number.
	}
	return out
}
