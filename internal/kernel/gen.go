package kernel

//go:generate go run ./tables
