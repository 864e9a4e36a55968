package doctor

import "testing"

// TestSockets checks an interface whose card is on socket 0 of two sockets with two CPUs each.
func TestSockets(t *testing.T) {
	with := func(interrupts, agent string) map[string]string {
		files := map[string]string{
			"/sys/class/net/eth0/device/numa_node": "0", "/sys/class/net/eth0/device/msi_irqs/33": "msix",
			"/sys/devices/system/node/node0/cpulist": "0,2", "/sys/devices/system/node/node1/cpulist": "1,3",
			"/proc/irq/33/effective_affinity_list": interrupts,
			"/proc/7/cmdline":                      "/usr/bin/other\x00agent\x00", "/proc/7/status": "Cpus_allowed_list:\t1",
		}
		if agent != "" {
			files["/proc/42/cmdline"], files["/proc/42/status"] = "/usr/bin/sluice\x00agent\x00", "Name:\tsluice\nCpus_allowed_list:\t"+agent
		}
		return files
	}
	one := with("3", "1")
	delete(one, "/sys/devices/system/node/node1/cpulist")
	for name, c := range map[string]struct {
		files map[string]string
		want  []Level
	}{
		"all beside the card":      {with("0", "0,2"), nil},
		"no agent":                 {with("2", ""), nil},
		"interrupts on the other":  {with("1", "0"), []Level{Warn}},
		"agent on the other":       {with("0-3", "1,3"), []Level{Warn}},
		"agent on both":            {with("0", "0-3"), []Level{Info}},
		"both on the other":        {with("3", "3"), []Level{Warn, Warn}},
		"one socket":               {one, nil},
		"a list that is not right": {with("x-9999999999,-1-2", "0"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			found := machine(t, c.files, nil).sockets("eth0")
			if len(found) != len(c.want) {
				t.Fatalf("%+v, want %v", found, c.want)
			}
			for i, f := range found {
				if f.Level != c.want[i] || f.Advice == "" {
					t.Errorf("%+v, want %v", f, c.want)
				}
			}
		})
	}
	if found := machine(t, nil, nil).sockets("eth0"); len(found) > 0 {
		t.Errorf("a virtual interface: %+v", found)
	}
}
