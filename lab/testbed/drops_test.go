package testbed

import "testing"

func TestDropsAreRead(t *testing.T) {
	sockets := "p_raw UNCONN 0 0 *:eth0 *\n\t skmem:(r0,rb33554432,t0,tb33554432,f0,w0,o0,bl0,d12)\n" +
		"udp UNCONN 0 0 10.0.0.1:5001 0.0.0.0:*\n\t skmem:(r0,rb8388608,t0,tb212992,f4096,w0,o0,bl0,d30) cgroup:/\n"
	if got := socketDrops(sockets); got != 42 {
		t.Errorf("sockets dropped %d", got)
	}
	got, err := backlogDrops("0000a0f1 00000002 00000000\n000000ff 0000000a 00000000\n")
	if err != nil || got != 12 {
		t.Errorf("the backlog dropped %d, %v", got, err)
	}
	if _, err := backlogDrops("nonsense\n"); err == nil {
		t.Error("a line without columns is taken")
	}
	if d := (Drops{Sockets: 5, Backlog: 3}).Since(Drops{Sockets: 2, Backlog: 3}); d != (Drops{Sockets: 3}) {
		t.Errorf("since: %+v", d)
	}
}
