package lab

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A lab in a mount namespace with a /run of its own has records of its own, and the
// sysctls are the machine's all the same. So the daemons of every lab carry in their
// environment which lab they are of, and what each changed sysctl was before.
const holderVariable = "SLUICE_LAB_" // and the sysctl's name

// env is what a daemon of the lab says about the sysctls.
func (t *tuning) env() []string {
	var all []string
	for name, original := range t.originals {
		all = append(all, holderVariable+name+"="+original+" "+t.dir)
	}
	return all
}

// holder is a lab that has changed a sysctl, and the machine's own value.
type holder struct{ dir, original string }

// holders are the labs whose daemons run, one entry for each daemon.
func holders(sysctl string) []holder {
	files, _ := filepath.Glob("/proc/[0-9]*/environ") // the pattern is well formed
	var all []holder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		for entry := range strings.SplitSeq(string(text), "\x00") {
			said, ok := strings.CutPrefix(entry, holderVariable+sysctl+"=")
			if original, dir, complete := strings.Cut(said, " "); ok && complete {
				all = append(all, holder{dir: dir, original: original})
			}
		}
	}
	return all
}

// adopt adds the labs that run to those that are recorded.
func (s *sysctlState) adopt(running []holder) {
	for _, h := range running {
		if s.Original == "" {
			s.Original = h.original
		}
		if !slices.Contains(s.running, h.dir) {
			s.running = append(s.running, h.dir)
		}
		if !slices.Contains(s.Labs, h.dir) {
			s.Labs = append(s.Labs, h.dir)
		}
	}
}
