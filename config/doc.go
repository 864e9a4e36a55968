// Package config reads the configuration of the controller and of the agent:
// one YAML file each, over which the environment and flags go.
//
// Reading is strict. Unknown and repeated keys, wrong types, values out of
// range and settings that contradict each other are refused, all of them at
// once, each with file, line, key, value and what would be right. A
// configuration that Load returns can be used as it is.
//
// The structs Controller and Agent are the only description of the settings:
// their tags hold names, limits and documentation, and the example files, the
// reference and the output of "sluice config show" are made from them.
//
// Tags of a field:
//
//	yaml    its key
//	doc     what it is, one or two sentences
//	min,max limits, inclusive, written like a value of the field
//	oneof   the words it may be, separated by "|"
//	file    "yes": a file that must exist when the configuration is checked
package config
