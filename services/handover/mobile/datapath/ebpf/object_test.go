package ebpf

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/handover/mobile/datapath"
)

// compiler is the version whose output is in the repository.
const compiler = "clang version 14.0.6"

// TestObjectIsOfSource compiles the programs again.
func TestObjectIsOfSource(t *testing.T) {
	version, err := exec.CommandContext(t.Context(), "clang", "--version").Output()
	if err != nil {
		t.Skipf("no clang: %v", err)
	}
	if !strings.Contains(string(version), compiler) {
		t.Skipf("another compiler: %.60s", version)
	}
	if _, err := os.Stat("/usr/include/bpf/bpf_helpers.h"); err != nil {
		t.Skipf("no libbpf-dev: %v", err)
	}
	dir := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "bpf/generate.sh", dir).CombinedOutput(); err != nil {
		t.Fatalf("compiling: %v\n%s", err, out)
	}
	for _, name := range []string{"datapath_bpfel.go", "datapath_bpfel.o", "datapath_bpfeb.go", "datapath_bpfeb.o"} {
		fresh, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if old, err := os.ReadFile(name); err != nil || !bytes.Equal(fresh, old) {
			t.Errorf("%s is not what datapath.c compiles to: run go generate (%v)", name, err)
		}
	}
}

// loaded loads the programs as for a device with two interfaces, or skips.
func loaded(t testing.TB, nic openflow.MAC) (*shared, *ebpf.Program) {
	t.Helper()
	s, err := loadShared(1, openflow.MAC{2, 0, 0, 0, 0, 1})
	if errors.Is(err, datapath.ErrUnsupported) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.close)
	receive, err := s.loadReceiver(datapath.Interface{Name: "wifi", MAC: nic}, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = receive.Close() })
	return s, receive
}

// TestHooksLeaveOthersAlone attaches beside another program.
func TestHooksLeaveOthersAlone(t *testing.T) {
	s, receive := loaded(t, openflow.MAC{2, 0, 0, 0, 0, 2})
	inSpace(t, func() error {
		link, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		if err := netlink.QdiscAdd(clsact(link)); err != nil {
			return err
		}
		theirs := &netlink.BpfFilter{
			FilterAttrs: netlink.FilterAttrs{LinkIndex: link.Attrs().Index, Parent: ingress, Handle: 1, Protocol: unix.ETH_P_ALL, Priority: 7},
			Fd:          s.send.FD(), Name: "theirs", DirectAction: true,
		}
		if err := netlink.FilterAdd(theirs); err != nil {
			return err
		}
		ours, other := hooksOf("vni0"), hooksOf("vni1")
		if err := errors.Join(ours.attach(link, ingress, receive), other.attach(link, egress, s.send)); err != nil {
			return err
		}
		for _, step := range []struct {
			h         hooks
			in, out   int
			remaining string
		}{{ours, 1, 1, "theirs and vni1's"}, {other, 1, 0, "theirs"}} {
			names, err := step.h.sweep()
			if err != nil {
				return err
			}
			if len(names) != 1 || names[0] != "lo" {
				t.Errorf("swept %q", names)
			}
			in, err := netlink.FilterList(link, ingress)
			if err != nil {
				return err
			}
			out, err := netlink.FilterList(link, egress)
			if err != nil {
				return err
			}
			if len(in) != step.in || len(out) != step.out {
				t.Errorf("%d and %d programs are left, want only %s", len(in), len(out), step.remaining)
			}
		}
		return nil
	})
}

// BenchmarkPrograms measures each program alone, by the kernel's own test run.
func BenchmarkPrograms(b *testing.B) {
	// One frame is sent through again and again, so both sides have one address.
	vni := openflow.MAC{2, 0, 0, 0, 0, 1}
	s, receive := loaded(b, vni)
	out := frameOf(vni, openflow.MAC{2, 0, 0, 0, 0, 9})
	in := frameOf(openflow.MAC{2, 0, 0, 0, 0, 9}, vni)
	for _, c := range []struct {
		name    string
		program *ebpf.Program
		frame   []byte
		choice  datapathChoice
	}{
		{"vni_tx", s.send, out, datapathChoice{Send: 1, Mac: openflow.MAC{2, 0, 0, 0, 0, 2}}},
		{"vni_tx-kept", s.send, segmentOf(out), datapathChoice{Send: 1, Mac: openflow.MAC{2, 0, 0, 0, 0, 2}, Merge: 1}},
		{"nic_rx", receive, in, datapathChoice{Receive: 1}},
		{"nic_rx-merging", receive, in, datapathChoice{Receive: 1, Merge: 1}},
		{"nic_rx-inactive", receive, in, datapathChoice{}},
	} {
		b.Run(c.name, func(b *testing.B) {
			if err := s.maps.Choices.Put(uint32(0), c.choice); err != nil {
				b.Fatal(err)
			}
			_, each, err := c.program.Benchmark(c.frame, max(b.N, 1), nil)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(each.Nanoseconds()), "ns/frame")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// frameOf returns a full-sized datagram.
func frameOf(src, dst openflow.MAC) []byte {
	b := append(append(append([]byte{}, dst[:]...), src[:]...), 0x08, 0x00)
	b = append(b, 0x45, 0, 5, 0xdc, 0, 1, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2)
	b = append(b, 0x0f, 0xa0, 0x1b, 0x58, 5, 0xc8, 0, 0)
	return append(b, make([]byte, 1514-len(b))...)
}

// segmentOf returns a TCP segment of the same size.
func segmentOf(datagram []byte) []byte {
	b := bytes.Clone(datagram)
	b[23], b[46] = 6, 0x50
	return b
}
