module outsight

go 1.26
