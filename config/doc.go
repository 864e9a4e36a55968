// Package config reads the configuration of the controller and of the agent: one YAML file each,
// which the environment and flags override.
//
// Reading is strict. It refuses unknown and repeated keys, wrong types, values out of range and
// contradictory settings. It reports all of them at once, each with file, line, key, value and what
// would be right. A configuration that Load returns is ready for use.
//
// The structs Controller and Agent are the only description of the settings: their tags hold names,
// limits and documentation. The example files, the reference and the output of "sluice config show"
// are made from them.
//
// Tags of a field:
//
//	yaml    its key
//	doc     its description, in one or two sentences
//	min,max limits, inclusive, written like a value of the field
//	oneof   the words that it may have, separated by "|"
//	pattern the regular expression that it must match, unless it is empty
//	form    a description of the values for people, for example of pattern
//	file    "yes": a file that must exist when the configuration is checked
//	reload  "yes": it takes effect without a restart
//
// Start reading at Load in load.go.
package config
