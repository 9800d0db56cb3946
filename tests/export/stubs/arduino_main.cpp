void setup();
void loop();

int main()
{
    setup();
    loop();
}
