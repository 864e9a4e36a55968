package config

// Kind is a program that reads a configuration.
type Kind struct {
	// Name is the program's, like controller.
	Name string
	// Load reads a configuration; if anything is wrong the error is Problems.
	Load func(Sources) (any, error)
	// Default is the configuration of a program that is told nothing.
	Default func() any
}

// Kinds lists the programs that read a configuration.
func Kinds() []Kind {
	return []Kind{
		{"controller", func(s Sources) (any, error) { return LoadController(s) }, func() any { return DefaultController() }},
		{"agent", func(s Sources) (any, error) { return LoadAgent(s) }, func() any { return DefaultAgent() }},
		{"mobile", func(s Sources) (any, error) { return LoadMobile(s) }, func() any { return DefaultMobile() }},
	}
}
