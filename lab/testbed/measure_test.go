package testbed

import (
	"context"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// localhost runs programs on this machine, without a lab.
type localhost struct{}

func (localhost) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, name, args...)
}

func TestParseIperf(t *testing.T) {
	report := `{"end":{"sum_sent":{"retransmits":7},"cpu_utilization_percent":{"host_total":20.5,"remote_total":40}},"server_output_json":{"intervals":[
	  {"sum":{"start":0,"seconds":1,"bytes":9e6},"streams":[{"seconds":1,"bytes":9e6},{"seconds":1,"bytes":0}]},
	  {"sum":{"start":0.999,"seconds":1,"bytes":3e6},"streams":[{"seconds":1,"bytes":1e6},{"seconds":1,"bytes":2e6}]},
	  {"sum":{"start":1.999,"seconds":2,"bytes":3e6},"streams":[{"seconds":2,"bytes":1e6},{"seconds":2,"bytes":2e6}]},
	  {"sum":{"start":3.999,"seconds":0.8,"bytes":5e4},"streams":[{"seconds":0.8,"bytes":5e4},{"seconds":0.8,"bytes":0}]}]}}`
	run := Transfer{Omit: time.Second, Time: 3 * time.Second}
	g, err := run.parse([]byte(report))
	if err != nil || g.BitsPerSecond != 16e6 || g.Retransmits != 7 || len(g.Streams) != 2 || g.Streams[1] != 8*4e6/3 || g.ClientCPU != 20.5 || g.ServerCPU != 40 {
		t.Errorf("report read as %+v, %v", g, err)
	}
	for _, bad := range []string{"", "{}", `{"error":"unable to connect"}`, `{"server_output_json":{"error":"unable to receive"}}`} {
		if g, err := run.parse([]byte(bad)); err == nil {
			t.Errorf("%q is read as %+v", bad, g)
		}
	}
}

// TestCPUTime compares the CPU clock with what the kernel tells a process about itself.
func TestCPUTime(t *testing.T) {
	used := func() time.Duration {
		var u unix.Rusage
		if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
			t.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	before := used()
	for used() < before+20*time.Millisecond {
		continue
	}
	least := used()
	got, err := CPUTime(os.Getpid())
	if most := used() + 2*time.Microsecond; err != nil || got < least || got > most { // The kernel reports whole microseconds of each mode.
		t.Errorf("own CPU time is %v, %v; want %v to %v", got, err, least, most)
	}
	child := exec.Command("true")
	if err := child.Run(); err != nil {
		t.Fatal(err)
	}
	if got, err := CPUTime(child.Process.Pid); err == nil {
		t.Errorf("a process that has ended used %v", got)
	}
}

// TestTransferThroughHAProxy measures over loopback with the real programs.
func TestTransferThroughHAProxy(t *testing.T) {
	for _, program := range []string{"iperf3", "haproxy", "ss"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("needs %s", program)
		}
	}
	const port, proxyPort = 22001, 22002 // ports outside the range of outgoing connections
	proxy, err := StartHAProxy(t.Context(), localhost{}, t.TempDir(), netip.MustParseAddrPort("127.0.0.1:22002"), "127.0.0.1:22001")
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Stop()
	run := Transfer{Client: localhost{}, Server: localhost{}, To: "127.0.0.1", Port: proxyPort, Time: 2 * time.Second}
	server := run
	server.Port = port
	running, err := server.serve(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer running.Stop()
	out, err := localhost{}.Command(t.Context(), "iperf3", run.clientArgs()...).Output()
	if err != nil {
		t.Fatal(err)
	}
	g, err := run.parse(out)
	if err != nil || g.BitsPerSecond <= 0 {
		t.Errorf("measured %+v, %v", g, err)
	}
	if used, err := CPUTime(proxy.PID()); err != nil || used <= 0 {
		t.Errorf("the proxy used %v of CPU, %v", used, err)
	}
}

// TestQUICDownload downloads over loopback with the real programs.
func TestQUICDownload(t *testing.T) {
	for _, program := range []string{"gtlsserver", "gtlsclient", "ss"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("needs %s", program)
		}
	}
	server, err := StartQUICServer(t.Context(), localhost{}, t.TempDir(), netip.MustParseAddrPort("127.0.0.1:22003"), "bbr")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Stop()
	before, err := CPUTime(server.PID())
	if err != nil {
		t.Fatal(err)
	}
	d, err := server.Download(t.Context(), localhost{}, 50_000_000)
	if err != nil || d.Total <= 0 || d.ClientCPU <= 0 {
		t.Fatalf("measured %+v, %v", d, err)
	}
	if after, err := CPUTime(server.PID()); err != nil || after <= before {
		t.Errorf("the server used %v of CPU, %v", after-before, err)
	}
}

func TestTransferReportsAbsentServer(t *testing.T) {
	if _, err := exec.LookPath("iperf3"); err != nil {
		t.Skip("needs iperf3")
	}
	run := Transfer{Client: localhost{}, Server: localhost{}, To: "127.0.0.1", Port: 42003, Time: time.Second}
	args := run.clientArgs()
	out, _ := localhost{}.Command(t.Context(), "iperf3", args...).Output()
	if _, err := run.parse(out); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("error %v, want the refusal", err)
	}
}
