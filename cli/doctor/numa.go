package doctor

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// sockets checks whether an interface's card, its interrupts and the agent are on one socket (NUMA
// node). Each packet that crosses between sockets costs time.
func (s *System) sockets(name string) []Finding {
	device := filepath.Join("/sys/class/net", name, "device")
	node, err := strconv.Atoi(s.read(filepath.Join(device, "numa_node")))
	nodes := s.nodes()
	if err != nil || node < 0 || len(nodes) < 2 {
		return nil // the interface is virtual, or the machine has only one socket
	}
	var out []Finding
	warn := func(found, advice string) {
		out = append(out, Finding{Check: "sockets", Level: Warn, Found: fmt.Sprintf("%s is on socket %d, %s", name, node, found), Advice: advice})
	}
	card := nodes[node]
	if cpus := s.interrupts(device); len(cpus) > 0 && disjoint(cpus, card) {
		warn("and its interrupts are handled on another", fmt.Sprintf("irqbalance, or CPUs %s in /proc/irq/*/smp_affinity_list of its interrupts", s.read(nodeList(node))))
	}
	switch cpus := s.agentCPUs(); {
	case len(cpus) == 0:
	case disjoint(cpus, card):
		warn("and the agent may run on another only", fmt.Sprintf("CPUAffinity=%s in the unit of sluice-agent (systemctl edit)", s.read(nodeList(node))))
	case slices.ContainsFunc(cpus, func(c int) bool { return !slices.Contains(card, c) }):
		out = append(out, Finding{Check: "sockets", Level: Info, Found: fmt.Sprintf("%s is on socket %d, and the agent may run on others, too", name, node), Advice: fmt.Sprintf("CPUAffinity=%s in the unit of sluice-agent keeps it beside the card", s.read(nodeList(node)))})
	}
	return out
}

func nodeList(node int) string { return fmt.Sprintf("/sys/devices/system/node/node%d/cpulist", node) }

// nodes returns the CPUs of each socket, by the number of its NUMA node.
func (s *System) nodes() map[int][]int {
	out := map[int][]int{}
	dirs, _ := filepath.Glob(filepath.Join(s.Root, "/sys/devices/system/node/node*"))
	for _, d := range dirs {
		if n, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(d), "node")); err == nil {
			out[n] = cpuList(s.read(nodeList(n)))
		}
	}
	return out
}

// interrupts returns the CPUs that handle a device's interrupts.
func (s *System) interrupts(device string) (cpus []int) {
	irqs, _ := os.ReadDir(filepath.Join(s.Root, device, "msi_irqs"))
	for _, irq := range irqs {
		at := filepath.Join("/proc/irq", irq.Name())
		of := cmp.Or(s.read(filepath.Join(at, "effective_affinity_list")), s.read(filepath.Join(at, "smp_affinity_list")))
		cpus = append(cpus, cpuList(of)...)
	}
	return cpus
}

// agentCPUs returns the CPUs that a running agent may use, or none if no agent runs.
func (s *System) agentCPUs() []int {
	commands, _ := filepath.Glob(filepath.Join(s.Root, "/proc/[0-9]*/cmdline"))
	for _, c := range commands {
		pid := filepath.Base(filepath.Dir(c))
		words := strings.Split(s.read(filepath.Join("/proc", pid, "cmdline")), "\x00")
		if len(words) < 2 || filepath.Base(words[0]) != "sluice" || words[1] != "agent" {
			continue
		}
		for line := range strings.Lines(s.read(filepath.Join("/proc", pid, "status"))) {
			if list, ok := strings.CutPrefix(line, "Cpus_allowed_list:"); ok {
				return cpuList(strings.TrimSpace(list))
			}
		}
	}
	return nil
}

// maxCPUs bounds the CPU numbers of a list. No machine has as many CPUs.
const maxCPUs = 8192

// cpuList parses the kernel's lists of CPUs, like 0-3,8.
func cpuList(text string) (cpus []int) {
	for part := range strings.SplitSeq(text, ",") {
		first, last, ranged := strings.Cut(part, "-")
		a, err := strconv.Atoi(first)
		b := a
		if ranged && err == nil {
			b, err = strconv.Atoi(last)
		}
		for c := a; err == nil && a >= 0 && c <= min(b, maxCPUs); c++ {
			cpus = append(cpus, c)
		}
	}
	return cpus
}

func disjoint(a, b []int) bool {
	return !slices.ContainsFunc(a, func(c int) bool { return slices.Contains(b, c) })
}
