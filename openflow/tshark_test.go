package openflow

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// wantTshark says what tshark must print for the samples that Open vSwitch does
// not implement.
var wantTshark = map[string][]string{
	"match-pbb":            {"OFPXMT_OFB_PBB_ISID (37)", "Value: 123400", "Mask: ffff00"},
	"match-exthdr":         {"OFPXMT_OFB_IPV6_EXTHDR (39)", "Value: 0040", "Mask: 01c0"},
	"match-phy-port":       {"OFPXMT_OFB_IN_PHY_PORT (1)", "Value: 5"},
	"action-ttl-copies":    {"OFPAT_COPY_TTL_OUT (11)", "OFPAT_COPY_TTL_IN (12)"},
	"action-pbb":           {"OFPAT_PUSH_PBB (26)", "(0x88e7)", "OFPAT_POP_PBB (27)"},
	"action-experimenter":  {"OFPAT_EXPERIMENTER (65535)", "Length: 16", "0x00001234"},
	"request-experimenter": {"OFPMP_EXPERIMENTER", "0x00001234"},
	"reply-experimenter":   {"OFPMP_EXPERIMENTER", "0x00001234"},
	"experimenter":         {"OFPT_EXPERIMENTER (4)", "0x12345678", "Experimenter type: 9"},
	"insert-bucket":        {"OFPT_EXPERIMENTER (4)", "0x00002320", "Experimenter type: 31"},
	"insert-bucket-all":    {"OFPT_EXPERIMENTER (4)", "Experimenter type: 31"},
	"remove-bucket":        {"OFPT_EXPERIMENTER (4)", "Experimenter type: 31"},
}

// TestTsharkReadsWhatWeWrite shows every sample to a second implementation.
func TestTsharkReadsWhatWeWrite(t *testing.T) {
	for _, program := range []string{"tshark", "text2pcap"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is not installed", program)
		}
	}
	all := samples()
	frames := dissect(t, all)
	if len(frames) != len(all) {
		t.Fatalf("tshark shows %d packets, want %d", len(frames), len(all))
	}
	for i, s := range all {
		got := frames[i]
		if s.name == "hello-of-1.5" {
			continue // of the other version that tshark knows
		}
		if !strings.Contains(got, "Version: 1.3 (0x04)") || strings.Contains(got, "Malformed") {
			t.Errorf("%s: tshark does not understand it:\n%s", s.name, got)
		}
		if s.refused() && wantTshark[s.name] == nil {
			t.Errorf("%s: no oracle judges it", s.name)
		}
		for _, want := range wantTshark[s.name] {
			if !strings.Contains(got, want) {
				t.Errorf("%s: tshark does not print %q but\n%s", s.name, want, got)
			}
		}
	}
}

// dissect returns what tshark prints for each sample.
func dissect(t *testing.T, all []sample) []string {
	t.Helper()
	var dump strings.Builder
	for _, s := range all {
		fmt.Fprintf(&dump, "000000 % x\n", mustAppend(s.msg))
	}
	text, pcap := filepath.Join(t.TempDir(), "hex"), filepath.Join(t.TempDir(), "pcap")
	if err := os.WriteFile(text, []byte(dump.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("text2pcap", "-q", "-T", "6653,6653", text, pcap).CombinedOutput(); err != nil {
		t.Fatalf("text2pcap: %v\n%s", err, out)
	}
	// Each message is a TCP segment of its own with the same sequence number;
	// without the analysis all but the first would pass for retransmissions.
	out, err := exec.Command("tshark", "-r", pcap, "-O", "openflow_v4",
		"-d", "tcp.port==6653,openflow", "-o", "tcp.analyze_sequence_numbers:FALSE", "-o", "tcp.desegment_tcp_streams:FALSE").Output()
	if err != nil {
		t.Fatalf("tshark: %v", err)
	}
	return strings.Split(string(out), "Frame ")[1:]
}
