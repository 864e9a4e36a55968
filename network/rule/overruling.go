package rule

import "fmt"

// Overruling says that another owner's rules come before one's own for some of the same
// packets: docs/topics/pipeline.md says what becomes of those.
type Overruling struct {
	Owner string
	// Name is that of one of its rules, and Names how many names its rules have.
	Name  string
	Names int
	// OneTable and Tables say on which switches: on those with tables what is overruled is
	// the way, and marks hold.
	OneTable, Tables bool
	// Rewrites is true if one of those rules changes headers of the packets, so that later
	// switches know them by others.
	Rewrites bool
}

// Notes says for each whose rules come first, and what that means for who asked.
func Notes(all []Overruling, means string) (notes []string) {
	for _, o := range all {
		notes = append(notes, o.String()+": "+means)
	}
	return notes
}

// String says whose rules come first, in words.
func (o Overruling) String() string {
	if o.Names == 1 {
		return fmt.Sprintf("%s comes first for packets that both are for (rules %s)", o.Owner, o.Name)
	}
	return fmt.Sprintf("%s comes first for packets that both are for (rules %s and %d more)", o.Owner, o.Name, o.Names-1)
}
