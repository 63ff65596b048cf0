from advice.cli import main

main()
