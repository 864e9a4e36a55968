package experiment

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/sluice-net/sluice/lab"
)

// errTwoMeanings means that a switch has two rules for frames with the same label and addresses.
var errTwoMeanings = errors.New("a label has two meanings")

// labelledFrames identifies the frames that one direction of a path forwards.
type labelledFrames struct{ label, from, to string }

// parsePathRules returns the packets that the rules of paths have counted, from the output of
// ovs-ofctl dump-flows. The error wraps errTwoMeanings.
func parsePathRules(flows string) (map[labelledFrames]uint64, error) {
	rules := map[labelledFrames]uint64{}
	for flow := range strings.Lines(flows) {
		fields := map[string]string{}
		match, _, _ := strings.Cut(flow, " actions=")
		for field := range strings.FieldsFuncSeq(match, func(r rune) bool { return r == ',' || r == ' ' || r == '\n' }) {
			key, value, _ := strings.Cut(field, "=")
			fields[key] = value
		}
		if fields["dl_type"] != "0x27c0" || fields["dl_vlan"] == "" {
			continue
		}
		x := labelledFrames{fields["dl_vlan"], fields["dl_src"], fields["dl_dst"]}
		if _, ok := rules[x]; ok {
			return nil, fmt.Errorf("%w: %s from %s to %s", errTwoMeanings, x.label, x.from, x.to)
		}
		packets, err := strconv.ParseUint(fields["n_packets"], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("the rule %q: %w", strings.TrimSpace(flow), err)
		}
		rules[x] = packets
	}
	return rules, nil
}

// pathRules returns the rules of paths that a switch reports, and the packets that they have
// counted. The error wraps errTwoMeanings.
func pathRules(ctx context.Context, s *lab.LiveSwitch) (map[labelledFrames]uint64, error) {
	flows, err := s.Ofctl(ctx, "dump-flows")
	var rules map[labelledFrames]uint64
	if err == nil {
		rules, err = parsePathRules(flows)
	}
	if err != nil {
		return nil, fmt.Errorf("the rules of %s: %w", s.Name(), err)
	}
	return rules, nil
}

// countPathRules returns the number of rules of paths that all switches report.
func countPathRules(ctx context.Context, l *lab.Lab) (n int, err error) {
	for _, s := range l.Topology().Switches {
		rules, err := pathRules(ctx, l.Switch(s.Name))
		if err != nil {
			return 0, err
		}
		n += len(rules)
	}
	return n, nil
}
