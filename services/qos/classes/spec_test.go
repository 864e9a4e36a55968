package classes

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/openflow"
)

// seed is a request with the names and the strings of the dissertation's (section 4.3.1).
const seed = `{"name": "VoIP", "min_rate": "2000000", "max_rate": "10000000", "latency": "150", "priority": "2",
 "flows": [{"ipv4_src": "10.0.0.2", "ipv4_dst": "10.0.0.4", "tcp_src": "5001"}, {"ipv4_src": "10.0.0.4", "ipv4_dst": "10.0.0.2", "tcp_dst": "5001"}]}`

func parse(t *testing.T, text string) (Class, string) {
	t.Helper()
	var spec ClassSpec
	if err := json.Unmarshal([]byte(text), &spec); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	c, faults := spec.Parse()
	var all []string
	for _, f := range faults {
		all = append(all, f.Field+": "+f.Want)
	}
	return c, strings.Join(all, "; ")
}

func TestRequestOfTheDissertation(t *testing.T) {
	for _, text := range []string{seed, strings.NewReplacer(`"2000000"`, `"2Mbit"`, `"10000000"`, `"0.01 Gbit/s"`, `"150"`, `"150ms"`).Replace(seed), strings.NewReplacer(`"2000000"`, "2000000", `"150"`, "150", `"2"`, "2", `"5001"`, "5001").Replace(seed)} {
		c, faults := parse(t, text)
		if faults != "" || c.MinRate != 2e6 || c.MaxRate != 10e6 || c.Latency != 150*time.Millisecond || c.Priority != 2 || len(c.Flows) != 2 {
			t.Fatalf("%+v, %s", c, faults)
		}
		if f := c.Flows[0]; f.Src.String() != "10.0.0.2" || f.Dst.String() != "10.0.0.4" || f.DSCP != nil {
			t.Errorf("%+v", f)
		}
		if _, ok := c.Flows[1].Matches[0].Get(openflow.FieldTCPDst); !ok {
			t.Errorf("%v", c.Flows[1].Matches)
		}
	}
}

// Each wrong request is refused with the field that is wrong.
func TestWrongRequests(t *testing.T) {
	flow := func(fields string) string { return `{"name":"x","priority":1,"flows":[{` + fields + `}]}` }
	for _, x := range []struct{ text, field string }{
		{`{"name":"","priority":1,"flows":[{"ipv4_dst":"10.0.0.4"}]}`, "name"},
		{`{"name":"x","priority":1,"flows":[{"ipv4_dst":"10.0.0.4"},{"ipv4_dst":"10.0.0.4"}]}`, "flows[1]"},
		{`{"name":"a b","priority":1,"flows":[{"ipv4_dst":"10.0.0.4"}]}`, "name"},
		{`{"name":"-a","priority":1,"flows":[{"ipv4_dst":"10.0.0.4"}]}`, "name"},
		{`{"name":"x","flows":[{"ipv4_dst":"10.0.0.4"}]}`, "priority"},
		{`{"name":"x","priority":8,"flows":[{"ipv4_dst":"10.0.0.4"}]}`, "priority"},
		{`{"name":"x","priority":-1,"flows":[{"ipv4_dst":"10.0.0.4"}]}`, "priority"},
		{`{"name":"x","priority":"high","flows":[{"ipv4_dst":"10.0.0.4"}]}`, "priority"},
		{`{"name":"x","priority":1.5,"flows":[{"ipv4_dst":"10.0.0.4"}]}`, "priority"},
		{`{"name":"x","priority":1,"min_rate":"2M","flows":[{"ipv4_dst":"10.0.0.4"}]}`, "min_rate"},
		{`{"name":"x","priority":1,"min_rate":"2Mbps","flows":[{"ipv4_dst":"10.0.0.4"}]}`, "min_rate"},
		{`{"name":"x","priority":1,"max_rate":"2Tbit","flows":[{"ipv4_dst":"10.0.0.4"}]}`, "max_rate"},
		{`{"name":"x","priority":1,"latency":"150 milli","flows":[{"ipv4_dst":"10.0.0.4"}]}`, "latency"},
		{`{"name":"x","priority":1,"min_rate":-5,"flows":[{"ipv4_dst":"10.0.0.4"}]}`, "min_rate"},
		{`{"name":"x","priority":1,"min_rate":1,"flows":[{"ipv4_dst":"10.0.0.4"}]}`, "min_rate"},
		{`{"name":"x","priority":1,"max_rate":0,"flows":[{"ipv4_dst":"10.0.0.4"}]}`, "max_rate"},
		{`{"name":"x","priority":1,"max_rate":2e12,"flows":[{"ipv4_dst":"10.0.0.4"}]}`, "max_rate"},
		{`{"name":"x","priority":1,"min_rate":2000000,"max_rate":1000000,"flows":[{"ipv4_dst":"10.0.0.4"}]}`, "min_rate"},
		{`{"name":"x","priority":1,"latency":0,"flows":[{"ipv4_dst":"10.0.0.4"}]}`, "latency"},
		{`{"name":"x","priority":1,"latency":"-3","flows":[{"ipv4_dst":"10.0.0.4"}]}`, "latency"},
		{`{"name":"x","priority":1,"latency":"soon","flows":[{"ipv4_dst":"10.0.0.4"}]}`, "latency"},
		{`{"name":"x","priority":1,"latency":"NaN","flows":[{"ipv4_dst":"10.0.0.4"}]}`, "latency"},
		{`{"name":"x","priority":1,"flows":[]}`, "flows"},
		{flow(``), "flows[0]"},
		{flow(`"tcp_dst":"80"`), "flows[0]"},
		{flow(`"ipv4_src":"10.0.0.2"`), "flows[0]"},
		{flow(`"ipv4_dst":"10.0.0.0/24"`), "flows[0]"},
		{flow(`"ipv4_dst":"224.0.0.1"`), "flows[0]"},
		{flow(`"eth_dst":"ff:ff:ff:ff:ff:ff"`), "flows[0]"},
		{flow(`"ipv4_dst":"10.0.0.400"`), "flows[0].ipv4_dst"},
		{flow(`"ipv4_dst":"10.0.0.4","tcp_dst":"70000"`), "flows[0].tcp_dst"},
		{flow(`"ipv4_dst":"10.0.0.4","tcp_dst":"80","udp_dst":"80"`), "flows[0].udp_dst"},
		{flow(`"ipv4_dst":"10.0.0.4","ip_dscp":"64"`), "flows[0].ip_dscp"},
		{flow(`"ipv6_dst":"10.0.0.4"`), "flows[0].ipv6_dst"},
		{flow(`"ipv4_dst":"10.0.0.4","eth_type":"ipv6"`), "flows[0]"},
		{flow(`"ipv4_dst":"10.0.0.4","in_port":3`), "flows[0].in_port"},
		{flow(`"ipv4_dst":"10.0.0.4","ipv4_src":"10.0.1.0/24","in_port":3`), "flows[0].in_port"},
	} {
		if _, faults := parse(t, x.text); !strings.HasPrefix(faults, x.field) || strings.HasSuffix(faults, ": ") {
			t.Errorf("%s: %q, want a fault of %s", x.text, faults, x.field)
		}
	}
}

// A port that packets come in by is the first switch's: the source says which that is.
func TestInPortBesideSource(t *testing.T) {
	c, faults := parse(t, `{"name":"x","priority":1,"flows":[{"ipv4_dst":"10.0.0.4","ipv4_src":"10.0.0.2","in_port":3}]}`)
	if faults != "" || !c.Flows[0].Src.IsValid() {
		t.Errorf("%+v: %s", c, faults)
	}
}
